"""Workload files with windows and joins in PyFlink: each is a keyed function with Flink's state and timers.

Times of messages are in microseconds, Flink's in milliseconds: at a watermark w all before (w + 1) · 1000 µs has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflink.common import Types  # type: ignore[import-not-found]
from pyflink.datastream import FlatMapFunction, KeyedProcessFunction  # type: ignore[import-not-found]
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor  # type: ignore[import-not-found]
from pyflink.table import Schema, StreamTableEnvironment  # type: ignore[import-not-found]

from . import flink_files
from .graph import Routes, stateful, targets
from .messages import Message, parse, row
from .outlog import OutLog, unique_log
from .stages import Step, pair_once

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
    """A step with state, for each key, and the steps without state behind it."""

    def __init__(self, spec: dict[str, Any], step: dict[str, Any]) -> None:
        self._spec = spec
        self._name = step["name"]
        self._step = Step(step, spec["prime"])

    def open(self, runtime_context: Any) -> None:
        self._ways = _Ways(self._spec)
        self._emit = self._ways.routes.emit((self._name, 0))
        self._begin(runtime_context)

    def process_element(self, value: Sent, ctx: Any) -> Iterable[Sent]:
        self._put(value[1], Message(*value[2:]), ctx.timer_service())
        return self._ways.sent()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Sent]:
        self._reach(timestamp, ctx)
        return self._ways.sent()

    def close(self) -> None:
        self._ways.close()

    def _begin(self, context: Any) -> None:
        raise NotImplementedError

    def _put(self, side: int, message: Message, timers: Any) -> None:
        raise NotImplementedError

    def _reach(self, time_ms: int, ctx: Any) -> None:
        raise NotImplementedError


def _map(context: Any, name: str) -> Any:
    return context.get_map_state(MapStateDescriptor(name, Types.LONG(), Types.PICKLED_BYTE_ARRAY()))


class _Window(_Stage):
    """Number and least id of each window that is open; a timer just before its end counts it out."""

    def _begin(self, context: Any) -> None:
        self._open = _map(context, "open")

    def _put(self, side: int, message: Message, timers: Any) -> None:
        for start_us in self._step.starts_us(message.time_us):
            found = self._open.get(start_us)
            if found is None:
                self._open.put(start_us, (1, message.id))
                timers.register_event_time_timer(-(-(start_us + self._step.size_us) // 1000) - 1)
            else:
                self._open.put(start_us, (found[0] + 1, min(found[1], message.id)))

    def _reach(self, time_ms: int, ctx: Any) -> None:
        ended_us = (time_ms + 1) * 1000 - self._step.size_us
        for start_us in sorted(start for start in self._open.keys() if start <= ended_us):  # noqa: SIM118 (no dict)
            count, least_id = self._open.get(start_us)
            self._open.remove(start_us)
            self._emit(self._step.count(ctx.get_current_key(), start_us, count, least_id))


class _JoinAll(_Stage):
    """Messages of both sides by the millisecond after which no partner can come: a timer then drops them."""

    def _begin(self, context: Any) -> None:
        self._sides = _map(context, "left"), _map(context, "right")

    def _put(self, side: int, message: Message, timers: Any) -> None:
        until_ms = (message.time_us + self._step.ttl_us) // 1000
        own, others = self._sides[side], self._sides[1 - side]
        found = own.get(until_ms)
        if found is None:
            timers.register_event_time_timer(until_ms)
        own.put(until_ms, [*(found or ()), tuple(message)])
        for messages in others.values():
            for each in messages:
                other = Message(*each)
                if abs(other.time_us - message.time_us) <= self._step.ttl_us:
                    self._emit(self._step.pair(side, message, other))

    def _reach(self, time_ms: int, ctx: Any) -> None:
        for messages in self._sides:
            messages.remove(time_ms)


class _JoinOnce(_Stage):
    """Messages by the millisecond in which their turn comes, and the line of those that wait for a partner."""

    def _begin(self, context: Any) -> None:
        self._early = _map(context, "early")
        self._line = _Line(context)

    def _put(self, side: int, message: Message, timers: Any) -> None:
        time_ms = message.time_us // 1000
        found = self._early.get(time_ms)
        if found is None:
            timers.register_event_time_timer(time_ms)
        self._early.put(time_ms, [*(found or ()), (message.time_us, side, message.value, message.id)])

    def _reach(self, time_ms: int, ctx: Any) -> None:
        key, ttl_us = ctx.get_current_key(), self._step.ttl_us
        turn = sorted(self._early.get(time_ms) or ())
        if turn:
            self._early.remove(time_ms)
        for time_us, side, value, id_ in turn:
            message = Message(key, value, time_us, id_)
            other = pair_once(side, message, self._line, ttl_us)
            if other is not None:
                self._emit(self._step.pair(side, message, other))
            else:
                # By then its time to live is over: a key of which nothing comes any more leaves nothing behind.
                ctx.timer_service().register_event_time_timer((time_us + ttl_us) // 1000 + 1)
        while (first := self._line.first()) is not None and first[1].time_us + ttl_us < time_ms * 1000:
            self._line.pop()


class _Line:
    """Those of a key who wait, in Flink's state: numbered, with the numbers of the first and the next one."""

    def __init__(self, context: Any) -> None:
        self._messages = _map(context, "waiting")
        self._ends = context.get_state(ValueStateDescriptor("ends", Types.PICKLED_BYTE_ARRAY()))

    def first(self) -> tuple[int, Message] | None:
        first, end = self._ends.value() or (0, 0)
        if first == end:
            return None
        side, message = self._messages.get(first)
        return side, Message(*message)

    def pop(self) -> None:
        first, end = self._ends.value()
        self._messages.remove(first)
        if first + 1 == end:
            self._ends.clear()
        else:
            self._ends.update((first + 1, end))

    def push(self, side: int, message: Message) -> None:
        first, end = self._ends.value() or (0, 0)
        self._messages.put(end, (side, tuple(message)))
        self._ends.update((first, end + 1))


def _stage(spec: dict[str, Any], step: dict[str, Any]) -> _Stage:
    if step["do"] == "window":
        return _Window(spec, step)
    return (_JoinOnce if step["match"] == "once" else _JoinAll)(spec, step)


def build(environment: Any, lines: Any, spec: dict[str, Any]) -> None:
    """Connect everything from the lines of the socket on; what comes out is logged on its way."""
    # Watermarks are made in SQL, inside the JVM: an assigner in Python would be one more way to Python and back.
    tables = StreamTableEnvironment.create(environment)
    tables.create_temporary_view("lines", lines.rebalance(), flink_files.schema(Schema.new_builder()))
    timed = tables.to_data_stream(tables.sql_query("SELECT f0 FROM lines"))
    made = [(timed.flat_map(_Source(spec), SENT), targets(spec, spec["sources"]))]
    for step in stateful(spec):
        name = step["name"]
        inputs = [stream if goals == [name] else stream.filter(_only(name)) for stream, goals in made if name in goals]
        whole = inputs[0].union(*inputs[1:]) if len(inputs) > 1 else inputs[0]
        keyed = whole.key_by(lambda sent: sent[2], Types.STRING())
        made.append((keyed.process(_stage(spec, step), SENT).name(name), targets(spec, [name])))


def _only(name: str) -> Any:
    return lambda sent: sent[0] == name
