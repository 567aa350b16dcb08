"""Workload files in plain Python: steps without state for every engine that calls functions, and whole graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from math import ceil, floor
from typing import Any

from .chance import draw, relabel
from .loads import Burner
from .messages import Emit, Message
from .stages import Keys

Place = tuple[str, int]  # an output of a source or a step
STATEFUL = ("window", "session", "join")


class Routes:
    """The ways of a message from a place through the steps without state.

    They end in a sink, which is told to ``out``, or at an input of a step with state, which is told to ``into``.
    """

    def __init__(
        self, spec: dict[str, Any], out: Callable[[str, Message], None], into: Callable[[str, int, Message], None]
    ) -> None:
        self._into = into
        self._readers: defaultdict[Place, list[Emit]] = defaultdict(list)
        for sink, place in spec["sinks"].items():
            self._readers[tuple(place)].append(partial(out, sink))
        for step in spec["steps"]:
            burner = Burner(**step["load"]) if "load" in step else None
            for side, place in enumerate(step["inputs"]):
                read = self._step(step, side)
                self._readers[tuple(place)].append(read if burner is None else _burdened(burner, read))
        self._sources = [self.emit((name, 0)) for name in spec["sources"]]

    def put(self, message: Message) -> None:
        self._sources[message.id % len(self._sources)](message)

    def emit(self, place: Place) -> Emit:
        """Return what takes the messages of a place."""
        readers = self._readers[place]

        def emit(message: Message) -> None:
            for read in readers:
                read(message)

        return emit

    def _step(self, step: dict[str, Any], side: int) -> Emit:
        """What reads one input of a step."""
        if step["do"] in STATEFUL:
            return partial(self._into, step["name"], side)
        emit = self.emit((step["name"], 0))
        match step["do"]:
            case "filter":
                below = step["below"]
                return lambda message: emit(message) if draw(step["draw"], message.id) >= below else None
            case "split":
                outs = [self.emit((step["name"], i)) for i in range(len(step["relabels"]))]

                def split(message: Message) -> None:
                    for numbers, out in zip(step["relabels"], outs, strict=True):
                        out(_resized(message, step["ratio"])._replace(id=relabel(numbers, message.id)))

                return split
            case "modify":

                def modify(message: Message) -> None:
                    copies = step["copies"] + (draw(step["draw"], message.id) < step["below"])
                    for numbers in step["relabels"][:copies]:
                        emit(_resized(message, step["ratio"])._replace(id=relabel(numbers, message.id)))

                return modify
        return emit


def _burdened(burner: Burner, read: Emit) -> Emit:
    def burn(message: Message) -> None:
        burner.burn()
        read(message)

    return burn


def _resized(message: Message, ratio: float) -> Message:
    if ratio == 1:
        return message
    value = message.value
    return message._replace(value=(value * ceil(ratio))[: floor(len(value) * ratio)])


def stateful(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for step in spec["steps"] if step["do"] in STATEFUL]


def targets(spec: dict[str, Any], names: list[str]) -> list[str]:
    """Return the steps with state that messages of these sources or steps come to, on ways without state."""
    reached, found = set(names), []
    for step in spec["steps"]:
        if any(node in reached for node, _ in step["inputs"]):
            if step["do"] in STATEFUL:
                found.append(step["name"])
            else:
                reached.add(step["name"])
    return found


class Graph:
    """All steps of a specification in one place; results go to ``out`` with the name of their sink.

    Messages must come in the order of their times: each says how far time has come.
    """

    def __init__(self, spec: dict[str, Any], out: Callable[[str, Message], None]) -> None:
        self._stages: dict[str, Keys] = {}
        self._routes = Routes(spec, out, lambda name, side, message: self._stages[name].put(side, message))
        for step in stateful(spec):
            self._stages[step["name"]] = Keys(step, self._routes.emit((step["name"], 0)))

    def put(self, message: Message) -> None:
        self.advance(message.time_us)
        self._routes.put(message)

    def advance(self, time_us: int) -> None:
        """Let time go on; what a stage gives out comes to the next ones before they hear of it."""
        for each in self._stages.values():
            each.advance(time_us)
