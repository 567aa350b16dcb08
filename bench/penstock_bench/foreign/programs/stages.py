"""The steps of workload files that keep state, written once: windows, and joins of both kinds of pairing.

A stage works on one key at a time. Its state is a few maps from whole numbers, which whoever runs it keeps: Flink in
its own state, all others in `Keys`. A stage asks to be called when a millisecond is over: when every message before the
next one has come. Until then messages may come in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, ClassVar

from .chance import combine
from .messages import Emit, Message

LEFT, RIGHT = 0, 1
MS_US = 1_000
Timer = Callable[[int], None]  # takes a millisecond since the epoch


class Stage(ABC):
    """A step with state; ``maps`` is how many maps it needs for a key."""

    maps: ClassVar[int]

    def __init__(self, step: dict[str, Any]) -> None:
        self.numbers: list[int] = step["combine"]
        self.ttl_us: int = step.get("ttl_us", 0)
        self.size_us: int = step.get("size_us", 0)
        self.slide_us: int = step.get("slide_us", 0)
        self.gap_us: int = step.get("gap_us", 0)

    @abstractmethod
    def put(self, state: Sequence[Any], side: int, message: Message, timer: Timer) -> Iterable[Message]:
        """Take a message of an input; return what comes of it."""

    @abstractmethod
    def reach(self, state: Sequence[Any], key: str, time_ms: int, timer: Timer) -> Iterable[Message]:
        """A millisecond that was asked for is over."""

    def pair(self, side: int, message: Message, other: Message) -> Message:
        """Join a message that came on ``side`` and one of the other side."""
        left, right = (message, other) if side == LEFT else (other, message)
        id_ = combine(self.numbers, left.id, right.id)
        return Message(left.key, left.value + right.value, max(left.time_us, right.time_us), id_)


class Window(Stage):
    """Number and least id of each window that is open, by its start; counted out just before its end."""

    maps = 1

    def put(self, state: Sequence[Any], side: int, message: Message, timer: Timer) -> Iterable[Message]:
        for start_us in self.starts_us(message.time_us):
            found = state[0].get(start_us)
            if found is None:
                timer(-(-(start_us + self.size_us) // MS_US) - 1)
            count, least_id = found or (0, message.id)
            state[0].put(start_us, (count + 1, min(least_id, message.id)))
        return ()

    def reach(self, state: Sequence[Any], key: str, time_ms: int, timer: Timer) -> Iterable[Message]:
        ended_us = (time_ms + 1) * MS_US - self.size_us
        for start_us in sorted(start for start in state[0].keys() if start <= ended_us):  # noqa: SIM118 (no dict)
            count, least_id = state[0].get(start_us)
            state[0].remove(start_us)
            id_ = combine(self.numbers, least_id, start_us // self.slide_us)
            yield Message(key, str(count), start_us + self.size_us - 1, id_)

    def starts_us(self, time_us: int) -> range:
        """Starts of the windows that a time is in."""
        return range(time_us - time_us % self.slide_us, time_us - self.size_us, -self.slide_us)


class _Session(Stage):
    """Last time, number and least id of each session that is open, by its start; told when nothing can join it."""

    maps = 1

    def put(self, state: Sequence[Any], side: int, message: Message, timer: Timer) -> Iterable[Message]:
        gap_us, open_ = self.gap_us, state[0]
        start_us = last_us = message.time_us
        count, least_id = 1, message.id
        touched = [
            start for start in list(open_.keys()) if start - gap_us <= message.time_us <= open_.get(start)[0] + gap_us
        ]
        for start in touched:
            last, counted, least = open_.get(start)
            open_.remove(start)
            start_us, last_us = min(start_us, start), max(last_us, last)
            count, least_id = count + counted, min(least_id, least)
        open_.put(start_us, (last_us, count, least_id))
        timer((last_us + gap_us) // MS_US)
        return ()

    def reach(self, state: Sequence[Any], key: str, time_ms: int, timer: Timer) -> Iterable[Message]:
        over_us = (time_ms + 1) * MS_US - self.gap_us
        found = [(start, tuple(state[0].get(start))) for start in list(state[0].keys())]
        for start_us, (last_us, count, least_id) in sorted(each for each in found if each[1][0] < over_us):
            state[0].remove(start_us)
            yield Message(key, str(count), last_us + self.gap_us, combine(self.numbers, least_id, start_us))


class _JoinAll(Stage):
    """All pairs at most a time to live apart: both sides, by the millisecond after which no partner can come."""

    maps = 2

    def put(self, state: Sequence[Any], side: int, message: Message, timer: Timer) -> Iterable[Message]:
        until_ms = (message.time_us + self.ttl_us) // MS_US
        found = state[side].get(until_ms)
        if found is None:
            timer(until_ms)
        state[side].put(until_ms, [*(found or ()), tuple(message)])
        return [
            self.pair(side, message, other)
            for messages in state[1 - side].values()
            for other in (Message(*each) for each in messages)
            if abs(other.time_us - message.time_us) <= self.ttl_us
        ]

    def reach(self, state: Sequence[Any], key: str, time_ms: int, timer: Timer) -> Iterable[Message]:
        for messages in state:
            messages.remove(time_ms)
        return ()


class _JoinOnce(Stage):
    """Every message pairs at most once; they are taken in the order of time, side, value and id.

    Kept are messages by the millisecond in which their turn comes, and those that wait for a partner, numbered. All
    that wait are of one side: else two of them had paired.
    """

    maps = 2
    _ENDS = -1  # where the numbers of the first that waits and of the next one stand

    def put(self, state: Sequence[Any], side: int, message: Message, timer: Timer) -> Iterable[Message]:
        time_ms = message.time_us // MS_US
        found = state[0].get(time_ms)
        if found is None:
            timer(time_ms)
        state[0].put(time_ms, [*(found or ()), (message.time_us, side, message.value, message.id)])
        return ()

    def reach(self, state: Sequence[Any], key: str, time_ms: int, timer: Timer) -> Iterable[Message]:
        early, waiting = state
        turn = sorted(early.get(time_ms) or ())
        if turn:
            early.remove(time_ms)
        for time_us, side, value, id_ in turn:
            message = Message(key, value, time_us, id_)
            self._drop(waiting, time_us - self.ttl_us)
            first, end = waiting.get(self._ENDS) or (0, 0)
            if first < end and waiting.get(first)[0] != side:
                other = Message(*waiting.get(first)[1])
                self._pop(waiting)
                yield self.pair(side, message, other)
            else:
                waiting.put(end, (side, tuple(message)))
                waiting.put(self._ENDS, (first, end + 1))
                # By then its time to live is over: a key of which nothing comes any more leaves nothing behind.
                timer((time_us + self.ttl_us) // MS_US + 1)
        self._drop(waiting, time_ms * MS_US - self.ttl_us)

    def _drop(self, waiting: Any, oldest_us: int) -> None:
        """Nobody waits any longer who came before this time."""
        while (ends := waiting.get(self._ENDS)) is not None and Message(*waiting.get(ends[0])[1]).time_us < oldest_us:
            self._pop(waiting)

    def _pop(self, waiting: Any) -> None:
        first, end = waiting.get(self._ENDS)
        waiting.remove(first)
        if first + 1 == end:
            waiting.remove(self._ENDS)
        else:
            waiting.put(self._ENDS, (first + 1, end))


def stage_of(step: dict[str, Any]) -> Stage:
    if step["do"] == "window":
        return Window(step)
    if step["do"] == "session":
        return _Session(step)
    return _JoinOnce(step) if step["match"] == "once" else _JoinAll(step)


class Held(dict[int, Any]):
    """A map in memory, with the words of Flink's."""

    put = dict.__setitem__

    def remove(self, key: int) -> None:
        self.pop(key, None)


class Keys:
    """A step with state for all the keys that it is given, in memory; results go to ``emit``."""

    def __init__(self, step: dict[str, Any], emit: Emit) -> None:
        self._stage, self._emit = stage_of(step), emit
        self._keys: dict[str, list[Held]] = {}
        self._timers: list[tuple[int, str]] = []

    def put(self, side: int, message: Message) -> None:
        state = self._keys.get(message.key)
        if state is None:
            state = self._keys[message.key] = [Held() for _ in range(self._stage.maps)]
        for made in self._stage.put(state, side, message, partial(self._timer, message.key)):
            self._emit(made)

    def advance(self, time_us: int) -> None:
        """Let time go on: no message before this time will come."""
        while self._timers and (self._timers[0][0] + 1) * MS_US <= time_us:
            time_ms, key = heappop(self._timers)
            state = self._keys.get(key)
            if state is None:
                continue
            for made in self._stage.reach(state, key, time_ms, partial(self._timer, key)):
                self._emit(made)
            if not any(state):
                del self._keys[key]

    def _timer(self, key: str, time_ms: int) -> None:
        heappush(self._timers, (time_ms, key))
