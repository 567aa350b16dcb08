"""The workloads on Flink: PyFlink's DataStream API in thread or process mode, and Flink SQL; in its own environment."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from pyflink.common import Configuration, Types  # type: ignore[import-not-found]
from pyflink.datastream import (  # type: ignore[import-not-found]
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor  # type: ignore[import-not-found]

from . import flink_graph, kafka_flink
from .flink_sql import run_sql
from .graph import stateful
from .outlog import unique_log
from .queries import Counting, query, specification


class _Told:
    """The query is made where it is used, so that the table of ads is not sent along; rows leave into the log."""

    logs = True

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def open(self, runtime_context: Any) -> None:
        self._wanted: Any = query(self._spec)
        self._log = unique_log(self._spec["out"]) if self.logs else None

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


class _Keys(_Told, FlatMapFunction):  # type: ignore[misc]
    """Parse, filter and join."""

    logs = False

    def flat_map(self, value: str) -> Iterable[str]:
        found: Iterable[str] = self._wanted.keys(value.encode())
        return found


class _Count(_Told, KeyedProcessFunction):  # type: ignore[misc]
    """The running count of a key in Flink's state; the row leaves here, or goes on to a topic."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__(spec)
        self.logs = "servers" not in spec

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterable[Any]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        if self._log is None:
            return kafka_flink.counted(value, count)
        self._log.row(self._wanted.row(value, count))
        return ()


class _Rows(_Told, FlatMapFunction):  # type: ignore[misc]
    """A query without state; the row leaves here."""

    def flat_map(self, value: str) -> Iterable[str]:
        assert self._log is not None
        for row in self._wanted.rows(value.encode()):
            self._log.row(row)
        return ()


def _environment(spec: dict[str, Any]) -> Any:
    configuration = Configuration()
    for name, value in spec["configuration"].items():
        configuration.set_string(name, value)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def main() -> None:
    """Run the query of a specification until the input ends, or, over Kafka, until it is ended."""
    spec = specification()
    environment = _environment(spec)

    def count(lines: Any, *row: Any) -> Any:
        return (
            lines.flat_map(_Keys(spec), Types.STRING())
            .key_by(lambda key: key, Types.STRING())
            .process(_Count(spec), *row)
        )

    if "servers" in spec:
        kafka_flink.run(environment, spec, lambda lines: count(lines, kafka_flink.COUNTED))
        return
    # Flink's own socket source: the lines come into the JVM without Python.
    socket = environment._j_stream_execution_environment.socketTextStream("127.0.0.1", spec["port"], "\n")
    lines = DataStream(socket)
    if spec["variant"] == "sql":
        run_sql(environment, lines, spec)
        return
    if spec["workload"] == "file" and stateful(spec):
        flink_graph.build(environment, lines, spec)
    elif isinstance(query(spec), Counting):
        count(lines.rebalance())
    else:
        lines.rebalance().flat_map(_Rows(spec), Types.STRING())
    environment.execute("bench")


if __name__ == "__main__":
    main()
