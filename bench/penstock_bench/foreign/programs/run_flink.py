"""The workloads on Flink: PyFlink's DataStream API in thread or process mode, and Flink SQL; in its own environment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Types  # type: ignore[import-not-found]
from pyflink.datastream import (  # type: ignore[import-not-found]
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor  # type: ignore[import-not-found]

from . import flink_graph
from .flink_sql import run_sql
from .graph import stateful
from .outlog import unique_log
from .queries import Counting, Query, query


class Keys(FlatMapFunction):  # type: ignore[misc]
    """Parse, filter and join; the query is made where it is used, so that the table of ads is not sent along."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def open(self, runtime_context: Any) -> None:
        wanted = query(self._spec)
        assert isinstance(wanted, Counting)
        self._keys = wanted.keys

    def flat_map(self, value: str) -> Iterable[str]:
        return self._keys(value.encode())


class _Count(KeyedProcessFunction):  # type: ignore[misc]
    """The running count of a key in Flink's state; the row leaves here."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def open(self, runtime_context: Any) -> None:
        wanted = query(self._spec)
        assert isinstance(wanted, Counting)
        self._row = wanted.row
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._log = unique_log(self._spec["out"])

    def process_element(self, value: str, ctx: Any) -> Iterable[str]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        self._log.row(self._row(value, count))
        return ()

    def close(self) -> None:
        self._log.close()


class _Rows(FlatMapFunction):  # type: ignore[misc]
    """A query without state; the row leaves here."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def open(self, runtime_context: Any) -> None:
        wanted = query(self._spec)
        assert not isinstance(wanted, Counting)
        self._rows = wanted.rows
        self._log = unique_log(self._spec["out"])

    def flat_map(self, value: str) -> Iterable[str]:
        for row in self._rows(value.encode()):
            self._log.row(row)
        return ()

    def close(self) -> None:
        self._log.close()


def make_environment(spec: dict[str, Any]) -> Any:
    configuration = Configuration()
    for name, value in spec["configuration"].items():
        configuration.set_string(name, value)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def _run_datastream(environment: Any, lines: Any, wanted: Query, spec: dict[str, Any]) -> None:
    if isinstance(wanted, Counting):
        keys = lines.rebalance().flat_map(Keys(spec), Types.STRING())
        keys.key_by(lambda key: key, Types.STRING()).process(_Count(spec))
    else:
        lines.rebalance().flat_map(_Rows(spec), Types.STRING())
    environment.execute("bench")


def main() -> None:
    """Run the query of a specification until the input ends."""
    spec = json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text())
    environment = make_environment(spec)
    # Flink's own socket source: the lines come into the JVM without Python.
    socket = environment._j_stream_execution_environment.socketTextStream("127.0.0.1", spec["port"], "\n")
    lines = DataStream(socket)
    if spec["variant"] == "sql":
        run_sql(environment, lines, spec)
    elif spec["workload"] == "file" and stateful(spec):
        flink_graph.build(environment, lines, spec)
        environment.execute("bench")
    else:
        _run_datastream(environment, lines, query(spec), spec)


if __name__ == "__main__":
    main()
