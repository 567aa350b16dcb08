"""The steps of workload files that keep state, in plain Python: windows, and joins of both kinds of pairing.

A stage is told how far time has come; until then messages may come in any order. `graph` and Bytewax keep their state
in stages; Flink keeps it itself and shares the rules: how results are made, and which message pairs with which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from heapq import heappop, heappush
from typing import Any, Protocol

from .messages import Emit, Message

LEFT, RIGHT = 0, 1


class Step:
    """The numbers of a step with state, and the messages that it makes."""

    def __init__(self, step: dict[str, Any], prime: int) -> None:
        numbers: list[int] = step["combine"]
        self._a, self._b, self._c = numbers
        self._prime = prime
        self.ttl_us: int = step.get("ttl_us", 0)
        self.size_us: int = step.get("size_us", 0)
        self.slide_us: int = step.get("slide_us", 0)

    def starts_us(self, time_us: int) -> range:
        """Starts of the windows that a time is in."""
        return range(time_us - time_us % self.slide_us, time_us - self.size_us, -self.slide_us)

    def count(self, key: str, start_us: int, count: int, least_id: int) -> Message:
        """Make the result of a window."""
        id_ = self._combined(least_id, start_us // self.slide_us)
        return Message(key, str(count), start_us + self.size_us - 1, id_)

    def pair(self, side: int, message: Message, other: Message) -> Message:
        """Make the pair of a message that came on ``side`` and one of the other side."""
        left, right = (message, other) if side == LEFT else (other, message)
        id_ = self._combined(left.id, right.id)
        return Message(left.key, left.value + right.value, max(left.time_us, right.time_us), id_)

    def _combined(self, x: int, y: int) -> int:
        return (self._a * x % self._prime + self._b * y + self._c) % self._prime


class Waiting(Protocol):
    """Messages of one key that wait for a partner, in order. All are of one side: else two of them had paired."""

    def first(self) -> tuple[int, Message] | None:
        """Return the one that has waited longest, and its side."""

    def pop(self) -> None:
        """Take it away."""

    def push(self, side: int, message: Message) -> None:
        """Let one more wait."""


def pair_once(side: int, message: Message, waiting: Waiting, ttl_us: int) -> Message | None:
    """Return the partner of the next message in order, which is then used up as well; without one it waits."""
    first = waiting.first()
    while first is not None and first[1].time_us < message.time_us - ttl_us:
        waiting.pop()
        first = waiting.first()
    if first is None or first[0] == side:
        waiting.push(side, message)
        return None
    waiting.pop()
    return first[1]


class Stage(ABC):
    """A step with state, for all the keys that it is given."""

    @abstractmethod
    def put(self, side: int, message: Message) -> None:
        """Take a message of an input."""

    @abstractmethod
    def advance(self, time_us: int) -> None:
        """Let time go on: no message before this time will come."""


def stage(step: dict[str, Any], prime: int, emit: Emit) -> Stage:
    """Return the stage of a step; results go to ``emit``."""
    numbers = Step(step, prime)
    if step["do"] == "window":
        return _Window(numbers, emit)
    return _JoinOnce(numbers, emit) if step["match"] == "once" else _JoinAll(numbers, emit)


class _Window(Stage):
    """Messages of each key in windows; the windows that have ended are counted out in the order of their ends."""

    def __init__(self, step: Step, emit: Emit) -> None:
        self._step = step
        self._emit = emit
        self._open: dict[int, dict[str, list[int]]] = {}
        """Number and least id of each key, by the start of the window."""

    def put(self, side: int, message: Message) -> None:
        for start_us in self._step.starts_us(message.time_us):
            keys = self._open.setdefault(start_us, {})
            found = keys.get(message.key)
            if found is None:
                keys[message.key] = [1, message.id]
            else:
                found[0] += 1
                found[1] = min(found[1], message.id)

    def advance(self, time_us: int) -> None:
        for start_us in sorted(start for start in self._open if start + self._step.size_us <= time_us):
            for key, (count, least_id) in self._open.pop(start_us).items():
                self._emit(self._step.count(key, start_us, count, least_id))


class _JoinAll(Stage):
    """All pairs of messages of one key that are at most a time to live apart."""

    def __init__(self, step: Step, emit: Emit) -> None:
        self._step = step
        self._emit = emit
        self._sides: tuple[defaultdict[str, deque[Message]], ...] = (defaultdict(deque), defaultdict(deque))
        self._now_us = self._swept_us = 0

    def put(self, side: int, message: Message) -> None:
        self._sides[side][message.key].append(message)
        ttl_us = self._step.ttl_us
        others = self._sides[1 - side].get(message.key)
        if not others:
            return
        self._expire(others)
        for other in others:
            if abs(other.time_us - message.time_us) <= ttl_us:
                self._emit(self._step.pair(side, message, other))

    def advance(self, time_us: int) -> None:
        self._now_us = time_us
        if time_us - self._swept_us > self._step.ttl_us:
            # Keys of which nothing comes any more would stay for ever.
            self._swept_us = time_us
            for keys in self._sides:
                for messages in keys.values():
                    self._expire(messages)
                for key in [key for key, messages in keys.items() if not messages]:
                    del keys[key]

    def _expire(self, messages: deque[Message]) -> None:
        oldest_us = self._now_us - self._step.ttl_us
        while messages and messages[0].time_us < oldest_us:
            messages.popleft()


class _JoinOnce(Stage):
    """Every message pairs at most once; they are taken in the order of time, side, value and id."""

    def __init__(self, step: Step, emit: Emit) -> None:
        self._step = step
        self._emit = emit
        self._early: list[tuple[int, int, str, int, str]] = []
        """A heap of messages whose turn has not come: time, side, value, id, key."""
        self._waiting: defaultdict[str, _Line] = defaultdict(_Line)
        self._swept_us = 0

    def put(self, side: int, message: Message) -> None:
        heappush(self._early, (message.time_us, side, message.value, message.id, message.key))

    def advance(self, time_us: int) -> None:
        early = self._early
        while early and early[0][0] < time_us:
            at_us, side, value, id_, key = heappop(early)
            message = Message(key, value, at_us, id_)
            other = pair_once(side, message, self._waiting[key], self._step.ttl_us)
            if other is not None:
                self._emit(self._step.pair(side, message, other))
        if time_us - self._swept_us > self._step.ttl_us:
            self._swept_us = time_us
            oldest_us = time_us - self._step.ttl_us
            for key in [key for key, line in self._waiting.items() if line.ends_before(oldest_us)]:
                del self._waiting[key]


class _Line:
    """Those who wait, in memory."""

    def __init__(self) -> None:
        self._messages: deque[tuple[int, Message]] = deque()

    def first(self) -> tuple[int, Message] | None:
        return self._messages[0] if self._messages else None

    def pop(self) -> None:
        self._messages.popleft()

    def push(self, side: int, message: Message) -> None:
        self._messages.append((side, message))

    def ends_before(self, time_us: int) -> bool:
        """Whether nobody waits who came at this time or later."""
        return not self._messages or self._messages[-1][1].time_us < time_us
