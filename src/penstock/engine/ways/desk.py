"""The desk of a worker: which calls of users' functions are wanted, and whose results have come. Pure.

The shell makes the calls: an event loop and threads in the runtime, made-up time in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.engine.ways.calls import Calls


@dataclass(frozen=True, slots=True)
class Begin:
    """Make a call; answer with `Called`."""

    number: int
    function: Callable[[Any], Any]
    argument: Any
    threads: int
    """How many threads its kind may have; 0: the function gives a coroutine."""
    kind: int
    """Calls of one kind share threads."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for a call any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Called:
    """What has become of a call: a value, or an error."""

    number: int
    value: Any = None
    error: BaseException | None = None


class Desk:
    """Gives every call a number, and its result to the way that wants it."""

    def __init__(self) -> None:
        self.refused_results = 0
        self._orders: list[Begin | Cancel] = []
        self._open: dict[int, Calls] = {}
        self._number = 0

    def begin(self, way: Calls, function: Callable[[Any], Any], argument: Any, threads: int, kind: int) -> int:
        """Have a call made; return its number."""
        self._number += 1
        self._open[self._number] = way
        self._orders.append(Begin(self._number, function, argument, threads, kind))
        return self._number

    def cancel(self, number: int) -> None:
        """Refuse the result of a call, which may come all the same."""
        if self._open.pop(number, None) is not None:
            self._orders.append(Cancel(number))

    def take(self) -> list[Begin | Cancel]:
        """Take what the shell shall do."""
        if not self._orders:
            return []
        taken, self._orders = self._orders, []
        return taken

    def receive(self, done: Sequence[Called], now_us: int) -> None:
        """Take results.

        Raises
        ------
        PenstockError
            What an operation has failed with for good.
        """
        for each in done:
            way = self._open.pop(each.number, None)
            if way is None:
                self.refused_results += 1
            else:
                way.on_called(each, now_us)
