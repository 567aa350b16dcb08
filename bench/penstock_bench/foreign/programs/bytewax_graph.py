"""Workload files with windows and joins on Bytewax, which has no watermark: time is sent along with the messages.

Every sender tells all the instances of the next step how far its messages have come, behind the messages themselves; an
instance goes by the one that is furthest behind. Keys share a few instances, as a key could not be told by itself.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import bytewax.operators as op  # type: ignore[import-not-found]

from .graph import Routes, stateful, targets
from .messages import Message, parse, row
from .stages import Keys

INSTANCES_PER_WORKER = 4
"""Instances of a step with state: more of them are spread more evenly over the workers, but cost more marks."""
RESULT = ""
"""Where a row goes that is a result."""


class Mark(NamedTuple):
    """No message before this time will come from this sender."""

    sender: str
    time_us: int


class Put(NamedTuple):
    """A message for one side of a step."""

    side: int
    message: Message


Sent = tuple[str, str, Any]
"""The step, its instance, and a Put or a Mark; or RESULT and a row."""


class _Ways:
    """From one place on, through the steps without state."""

    def __init__(self, spec: dict[str, Any], goals: list[str]) -> None:
        self._instances = [str(i) for i in range(INSTANCES_PER_WORKER * spec["workers"])]
        self._goals = goals
        self._sent: list[Sent] = []
        self.routes = Routes(spec, self._out, self._into)

    def _out(self, sink: str, message: Message) -> None:
        self._sent.append((RESULT, "", row(sink, message)))

    def _into(self, name: str, side: int, message: Message) -> None:
        # Not hash(): that of a text is another one in every process.
        instance = self._instances[zlib.crc32(message.key.encode()) % len(self._instances)]
        self._sent.append((name, instance, Put(side, message)))

    def mark(self, mark: Mark) -> None:
        """Tell the time to everyone who gets messages from here."""
        self._sent += [(name, instance, mark) for name in self._goals for instance in self._instances]

    def sent(self) -> list[Sent]:
        """Return what was collected since the last call."""
        sent = self._sent
        self._sent = []
        return sent


class _Stage(op.StatefulBatchLogic):  # type: ignore[misc]
    """One instance of a step with state: the messages of its keys, and how far each sender has come."""

    def __init__(self, spec: dict[str, Any], step: dict[str, Any], senders: int) -> None:
        # It is not told which instance it is.
        self._sender = uuid.uuid4().hex
        self._ways = _Ways(spec, targets(spec, [step["name"]]))
        self._stage = Keys(step, self._ways.routes.emit((step["name"], 0)))
        self._senders = senders
        self._marks_us: dict[str, int] = {}
        self._now_us = 0

    def on_batch(self, values: list[Put | Mark]) -> tuple[Iterable[Sent], bool]:
        for value in values:
            if isinstance(value, Put):
                self._stage.put(value.side, value.message)
            else:
                self._marks_us[value.sender] = value.time_us
                self._advance()
        return self._ways.sent(), False

    def _advance(self) -> None:
        if len(self._marks_us) < self._senders:
            return
        now_us = min(self._marks_us.values())
        if now_us > self._now_us:
            self._now_us = now_us
            self._stage.advance(now_us)
            self._ways.mark(Mark(self._sender, now_us))

    def snapshot(self) -> None:
        # The dataflow is run without recovery, as all engines are here: nobody would read it.
        return None


def build(lines: Any, spec: dict[str, Any]) -> Any:
    """Connect everything from the lines and marks of the source on; return the stream of rows."""
    workers = spec["workers"]
    goals = targets(spec, spec["sources"])
    ways = _Ways(spec, goals)

    def begin(batch: list[bytes | Mark]) -> list[Sent]:
        for item in batch:
            if isinstance(item, Mark):
                ways.mark(item)
            else:
                ways.routes.put(parse(item))
        return ways.sent()

    made = [(op.flat_map_batch("messages", lines, begin), goals, workers)]
    for step in stateful(spec):
        name = step["name"]
        inputs = [(stream, senders) for stream, goals, senders in made if name in goals]
        streams = [op.flat_map_batch(f"{name}-from-{i}", stream, _only(name)) for i, (stream, _) in enumerate(inputs)]
        whole = op.merge(f"{name}-all", *streams) if len(streams) > 1 else streams[0]
        senders = sum(count for _, count in inputs)
        stepped = op.stateful_batch(name, whole, lambda _, step=step, senders=senders: _Stage(spec, step, senders))
        sent = op.key_rm(f"{name}-sent", stepped)
        made.append((sent, targets(spec, [name]), INSTANCES_PER_WORKER * workers))
    rows = [op.flat_map_batch(f"rows-{i}", stream, _rows) for i, (stream, _, _) in enumerate(made)]
    return op.merge("rows", *rows)


def _only(name: str) -> Any:
    return lambda batch: [(instance, value) for goal, instance, value in batch if goal == name]


def _rows(batch: list[Sent]) -> list[bytes]:
    return [value for goal, _, value in batch if goal == RESULT]
