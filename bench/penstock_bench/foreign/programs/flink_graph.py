"""Workload files with windows and joins in PyFlink: each is a keyed function with Flink's state and timers.

Times of messages are in microseconds, Flink's in milliseconds: at a watermark w all before (w + 1) · 1000 µs has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflink.common import Types  # type: ignore[import-not-found]
from pyflink.datastream import FlatMapFunction, KeyedProcessFunction  # type: ignore[import-not-found]
from pyflink.datastream.state import MapStateDescriptor  # type: ignore[import-not-found]
from pyflink.table import Schema, StreamTableEnvironment  # type: ignore[import-not-found]

from .flink_sql import schema
from .graph import Routes, stateful, targets
from .messages import Message, parse, row
from .outlog import OutLog, unique_log
from .stages import Timer, stage_of

# Name and side of the step that a message goes to, and the message.
SENT = Types.TUPLE([Types.STRING(), Types.INT(), Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()])
Sent = tuple[str, int, str, str, int, int]


class _Ways:
    """From one place on: results go into the log, what other steps have to get is collected."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._log: OutLog = unique_log(spec["out"])
        self._sent: list[Sent] = []
        self.routes = Routes(
            spec,
            lambda sink, message: self._log.row(row(sink, message)),
            lambda name, side, message: self._sent.append((name, side, *message[:4])),
        )

    def sent(self) -> list[Sent]:
        """Return what was collected since the last call."""
        sent = self._sent.copy()
        self._sent.clear()
        return sent

    def close(self) -> None:
        self._log.close()


class _Source(FlatMapFunction):  # type: ignore[misc]
    """Messages of the sources through the steps without state."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def open(self, runtime_context: Any) -> None:
        self._ways = _Ways(self._spec)

    def flat_map(self, value: Any) -> Iterable[Sent]:
        self._ways.routes.put(parse(value[0].encode()))
        return self._ways.sent()

    def close(self) -> None:
        self._ways.close()


class _Stage(KeyedProcessFunction):  # type: ignore[misc]
    """A step with state, for each key, in Flink's state and with its timers, and the steps without state behind it."""

    def __init__(self, spec: dict[str, Any], step: dict[str, Any]) -> None:
        self._spec, self._step = spec, step

    def open(self, runtime_context: Any) -> None:
        self._ways = _Ways(self._spec)
        self._emit = self._ways.routes.emit((self._step["name"], 0))
        self._stage = stage_of(self._step)
        kind = Types.LONG(), Types.PICKLED_BYTE_ARRAY()
        names = [f"state-{i}" for i in range(self._stage.maps)]
        self._state = [runtime_context.get_map_state(MapStateDescriptor(name, *kind)) for name in names]

    def process_element(self, value: Sent, ctx: Any) -> Iterable[Sent]:
        return self._sent(self._stage.put(self._state, value[1], Message(*value[2:]), _timer(ctx)))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Sent]:
        return self._sent(self._stage.reach(self._state, ctx.get_current_key(), timestamp, _timer(ctx)))

    def _sent(self, made: Iterable[Message]) -> Iterable[Sent]:
        for each in made:
            self._emit(each)
        return self._ways.sent()

    def close(self) -> None:
        self._ways.close()


def _timer(ctx: Any) -> Timer:
    timer: Timer = ctx.timer_service().register_event_time_timer
    return timer


def build(environment: Any, lines: Any, spec: dict[str, Any]) -> None:
    """Connect everything from the lines of the socket on; what comes out is logged on its way."""
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


def _only(name: str) -> Any:
    return lambda sent: sent[0] == name
