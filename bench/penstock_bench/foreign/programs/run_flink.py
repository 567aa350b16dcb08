"""The workloads on Flink: PyFlink's DataStream API in thread or process mode, and Flink SQL; in its own environment.

Lines come over a socket and rows leave into the log, or both are tables of Flink's Kafka connector. In files with
windows and joins each of these is a keyed function with Flink's state and timers. Times of messages are in
microseconds, Flink's in milliseconds: at a watermark w all before (w + 1) · 1000 µs has come.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from pyflink.common import Configuration, Row, Types  # type: ignore[import-not-found]
from pyflink.datastream import (  # type: ignore[import-not-found]
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor  # type: ignore[import-not-found]
from pyflink.table import Schema, StreamTableEnvironment  # type: ignore[import-not-found]

from .flink_sql import configured, run_sql, schema, views
from .graph import Routes, stateful, targets
from .messages import Message, parse, row
from .outlog import unique_log
from .queries import Counting, query, specification
from .stages import Timer, stage_of

# Name and side of the step that a message goes to, and the message.
SENT = Types.TUPLE([Types.STRING(), Types.INT(), Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()])
Sent = tuple[str, int, str, str, int, int]
COUNTED = Types.ROW_NAMED(["campaign_id", "window_start", "n"], [Types.STRING(), Types.LONG(), Types.LONG()])
_SOURCE = """
CREATE TEMPORARY TABLE lines (line STRING) WITH (
    'connector' = 'kafka', 'topic' = '{events}', 'properties.bootstrap.servers' = '{servers}',
    'properties.group.id' = 'bench', 'scan.startup.mode' = 'earliest-offset', 'format' = 'raw'
)"""
_RESULTS = """
CREATE TEMPORARY TABLE results (
    campaign_id STRING, window_start BIGINT, `count` BIGINT{key}
) WITH (
    'topic' = '{results}', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json',
    'value.format' = 'json', {connector}
)"""
_UPSERTED = {
    "key": ", PRIMARY KEY (campaign_id, window_start) NOT ENFORCED",
    "connector": "'connector' = 'upsert-kafka'",
}
_APPENDED = {
    "key": "",
    "connector": "'connector' = 'kafka', 'key.fields' = 'campaign_id', 'sink.delivery-guarantee' = 'none'",
}


class _Told:
    """What is told what to do; query and log are made where they are used, so the table of ads is not sent along."""

    logs = True

    def __init__(self, spec: dict[str, Any], step: dict[str, Any] | None = None) -> None:
        self._spec, self._step = spec, step or {}

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
            campaign, _, start_ms = value.partition("\t")
            return (Row(campaign, int(start_ms) * 1000, count),)
        self._log.row(self._wanted.row(value, count))
        return ()


class _Rows(_Told, FlatMapFunction):  # type: ignore[misc]
    """A query without state; the row leaves here."""

    def flat_map(self, value: str) -> Iterable[str]:
        assert self._log is not None
        for found in self._wanted.rows(value.encode()):
            self._log.row(found)
        return ()


class _Ways(_Told):
    """From one place of a file's graph on: results go into the log, what other steps have to get is collected."""

    def open(self, runtime_context: Any) -> None:
        log = self._log = unique_log(self._spec["out"])
        sent = self._sent = list[Sent]()
        self._routes = Routes(
            self._spec,
            lambda sink, message: log.row(row(sink, message)),
            lambda name, side, message: sent.append((name, side, *message[:4])),
        )

    def _taken(self) -> list[Sent]:
        """Return what was collected since the last call."""
        sent = self._sent.copy()
        self._sent.clear()
        return sent


class _Source(_Ways, FlatMapFunction):  # type: ignore[misc]
    """Messages of the sources through the steps without state."""

    def flat_map(self, value: Any) -> Iterable[Sent]:
        self._routes.put(parse(value[0].encode()))
        return self._taken()


class _Stage(_Ways, KeyedProcessFunction):  # type: ignore[misc]
    """A step with state, for each key, in Flink's state and with its timers, and the steps without state behind it."""

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self._emit = self._routes.emit((self._step["name"], 0))
        self._stage = stage_of(self._step)
        kind = Types.LONG(), Types.PICKLED_BYTE_ARRAY()
        names = [f"state-{i}" for i in range(self._stage.maps)]
        self._state = [runtime_context.get_map_state(MapStateDescriptor(name, *kind)) for name in names]

    def process_element(self, value: Sent, ctx: Any) -> Iterable[Sent]:
        return self._passed(self._stage.put(self._state, value[1], Message(*value[2:]), _timer(ctx)))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Sent]:
        return self._passed(self._stage.reach(self._state, ctx.get_current_key(), timestamp, _timer(ctx)))

    def _passed(self, made: Iterable[Message]) -> Iterable[Sent]:
        for each in made:
            self._emit(each)
        return self._taken()


def _timer(ctx: Any) -> Timer:
    timer: Timer = ctx.timer_service().register_event_time_timer
    return timer


def _only(name: str) -> Any:
    return lambda sent: sent[0] == name


def _graph(environment: Any, lines: Any, spec: dict[str, Any]) -> None:
    """Connect a file's steps from the lines of the socket on; what comes out is logged on its way."""
    # Watermarks are made in SQL, inside the JVM: an assigner in Python would be one more way to Python and back.
    tables = StreamTableEnvironment.create(environment)
    tables.create_temporary_view("lines", lines.rebalance(), schema(Schema.new_builder()))
    timed = tables.to_data_stream(tables.sql_query("SELECT f0 FROM lines"))
    made = [(timed.flat_map(_Source(spec), SENT), targets(spec, spec["sources"]))]
    for step in stateful(spec):
        name = step["name"]
        inputs = [stream if goals == [name] else stream.filter(_only(name)) for stream, goals in made if name in goals]
        whole = inputs[0].union(*inputs[1:]) if len(inputs) > 1 else inputs[0]
        keyed = whole.key_by(lambda sent: sent[2], Types.STRING())
        made.append((keyed.process(_Stage(spec, step), SENT).name(name), targets(spec, [name])))


def _counts(lines: Any, spec: dict[str, Any], *row: Any) -> Any:
    keys = lines.flat_map(_Keys(spec), Types.STRING())
    return keys.key_by(lambda key: key, Types.STRING()).process(_Count(spec), *row)


def _over_kafka(environment: Any, spec: dict[str, Any]) -> None:
    """Run until it is ended."""
    tables = configured(environment, spec)
    tables.execute_sql(_SOURCE.format(**spec))
    if spec["variant"] == "sql":
        tables.execute_sql(_RESULTS.format(**spec, **_UPSERTED))
        select = "SELECT campaign_id, window_start, COUNT(*) FROM joined GROUP BY campaign_id, window_start"
        tables.execute_sql(f"INSERT INTO results {views(spec, 1000)} {select}").wait()
        return
    tables.execute_sql(_RESULTS.format(**spec, **_APPENDED))
    lines = tables.to_data_stream(tables.from_path("lines")).map(lambda row: row[0], Types.STRING())
    tables.create_temporary_view("counted", tables.from_data_stream(_counts(lines, spec, COUNTED)))
    tables.execute_sql("INSERT INTO results SELECT campaign_id, window_start, n FROM counted").wait()


def _over_socket(environment: Any, spec: dict[str, Any]) -> None:
    """Run until the input ends."""
    # Flink's own socket source: the lines come into the JVM without Python.
    socket = environment._j_stream_execution_environment.socketTextStream("127.0.0.1", spec["port"], "\n")
    lines = DataStream(socket)
    if spec["variant"] == "sql":
        run_sql(environment, lines, spec)
        return
    if spec["workload"] == "file" and stateful(spec):
        _graph(environment, lines, spec)
    elif isinstance(query(spec), Counting):
        _counts(lines.rebalance(), spec)
    else:
        lines.rebalance().flat_map(_Rows(spec), Types.STRING())
    environment.execute("bench")


if __name__ == "__main__":
    told = specification()
    python = {"python.executable": sys.executable, "python.client.executable": sys.executable}
    configuration = Configuration()
    for name, value in {**told["configuration"], **python}.items():
        configuration.set_string(name, value)
    found = StreamExecutionEnvironment.get_execution_environment(configuration)
    (_over_kafka if "servers" in told else _over_socket)(found, told)
