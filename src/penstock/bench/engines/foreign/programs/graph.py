"""Workload files in plain Python: messages through a graph of steps, for engines that call Python functions.

Messages must come in the order of their times; then a window is complete when a message after its end has come.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from math import ceil, floor
from typing import Any, NamedTuple


class Message(NamedTuple):
    """What flows in every stream."""

    key: str
    value: str
    time_us: int
    id: int


def parse(line: bytes) -> Message:
    """Read a message from its line."""
    id_, time_us, key, value = line.decode().split("\t", 3)
    return Message(key, value, int(time_us), int(id_))


def row(sink: str, message: Message) -> bytes:
    """Write a result."""
    return json.dumps([sink, message.key, message.value, message.time_us, message.id]).encode()


Emit = Callable[[Message], None]
END_US = 1 << 62


class Graph:
    """The steps of a specification, connected; results go to ``out`` with the name of their sink."""

    def __init__(self, spec: dict[str, Any], out: Callable[[str, Message], None]) -> None:
        self._prime = spec["prime"]
        self._readers: defaultdict[tuple[str, int], list[Emit]] = defaultdict(list)
        self._sources = [self._emit((name, 0)) for name in spec["sources"]]
        self._windows: list[_Window] = []
        for sink, place in spec["sinks"].items():
            self._readers[tuple(place)].append(partial(out, sink))
        for step in spec["steps"]:
            for side, place in enumerate(step["inputs"]):
                self._readers[tuple(place)].append(self._step(step, side))

    def put(self, message: Message) -> None:
        """Take a message of a source; its id tells which."""
        self.advance(message.time_us)
        self._sources[message.id % len(self._sources)](message)

    def advance(self, time_us: int) -> None:
        """Let time go on: windows that have ended give out their counts."""
        for window in self._windows:
            window.close(time_us)

    def _emit(self, place: tuple[str, int]) -> Emit:
        readers = self._readers[place]

        def emit(message: Message) -> None:
            for read in readers:
                read(message)

        return emit

    def _step(self, step: dict[str, Any], side: int) -> Emit:
        """What reads one input of a step."""
        emit = self._emit((step["name"], 0))
        prime = self._prime
        match step["do"]:
            case "filter":
                below = step["below"]
                return lambda message: emit(message) if self._draw(step, message.id) >= below else None
            case "split":
                outs = [self._emit((step["name"], i)) for i in range(len(step["relabels"]))]

                def split(message: Message) -> None:
                    for (a, b), out in zip(step["relabels"], outs, strict=True):
                        out(_resized(message, step["ratio"])._replace(id=(a * message.id + b) % prime))

                return split
            case "modify":

                def modify(message: Message) -> None:
                    copies = step["copies"] + (self._draw(step, message.id) < step["below"])
                    for a, b in step["relabels"][:copies]:
                        emit(_resized(message, step["ratio"])._replace(id=(a * message.id + b) % prime))

                return modify
            case "merge":
                return emit
            case "join":
                if side == 0:
                    step["join"] = _Join(step, prime, emit)
                join: _Join = step["join"]
                return join.left if side == 0 else join.right
        window = _Window(step, prime, emit)
        self._windows.append(window)
        return window.put

    def _draw(self, step: dict[str, Any], id_: int) -> int:
        a, b, c = step["draw"]
        drawn: int = ((a * id_ + b) % self._prime * id_ + c) % self._prime
        return drawn


def _resized(message: Message, ratio: float) -> Message:
    if ratio == 1:
        return message
    value = message.value
    return message._replace(value=(value * ceil(ratio))[: floor(len(value) * ratio)])


class _Join:
    """Pairs of messages of one key from two sides that are at most a time to live apart."""

    def __init__(self, step: dict[str, Any], prime: int, emit: Emit) -> None:
        self._ttl_us = step["ttl_us"]
        self._a, self._b, self._c = step["combine"]
        self._prime = prime
        self._emit = emit
        self._sides: tuple[defaultdict[str, list[Message]], ...] = (defaultdict(list), defaultdict(list))

    def left(self, message: Message) -> None:
        for other in self._others(message, 0):
            self._pair(message, other)

    def right(self, message: Message) -> None:
        for other in self._others(message, 1):
            self._pair(other, message)

    def _others(self, message: Message, side: int) -> Iterable[Message]:
        self._sides[side][message.key].append(message)
        oldest_us = message.time_us - self._ttl_us
        others = self._sides[1 - side][message.key]
        while others and others[0].time_us < oldest_us:
            others.pop(0)
        return list(others)

    def _pair(self, left: Message, right: Message) -> None:
        id_ = (self._a * left.id % self._prime + self._b * right.id + self._c) % self._prime
        self._emit(Message(left.key, left.value + right.value, max(left.time_us, right.time_us), id_))


class _Window:
    """Messages of each key in windows; the windows that have ended are counted out in the order of their ends."""

    def __init__(self, step: dict[str, Any], prime: int, emit: Emit) -> None:
        self._size_us, self._slide_us = step["size_us"], step["slide_us"]
        self._a, self._b, self._c = step["combine"]
        self._prime = prime
        self._emit = emit
        self._open: dict[int, dict[str, list[int]]] = {}
        """Number and least id of each key, by the start of the window."""

    def put(self, message: Message) -> None:
        newest_us = message.time_us - message.time_us % self._slide_us
        for start_us in range(newest_us, message.time_us - self._size_us, -self._slide_us):
            keys = self._open.setdefault(start_us, {})
            found = keys.get(message.key)
            if found is None:
                keys[message.key] = [1, message.id]
            else:
                found[0] += 1
                found[1] = min(found[1], message.id)

    def close(self, time_us: int) -> None:
        for start_us in sorted(start for start in self._open if start + self._size_us <= time_us):
            number = start_us // self._slide_us
            for key, (count, least) in self._open.pop(start_us).items():
                id_ = (self._a * least % self._prime + self._b * number + self._c) % self._prime
                self._emit(Message(key, str(count), start_us + self._size_us - 1, id_))
