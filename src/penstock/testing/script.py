"""What may stand between the rows of a scripted input: marks that have something happen when the job gets there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.checks import Whole
from penstock.connectors.memory import At
from penstock.durations import parse_us
from penstock.errors import InvalidOption
from penstock.operators import Form

STEP_US = 1_000
"""What stands before a mark has been read when it comes, and what follows it has not."""


@dataclass(frozen=True, slots=True)
class Crash:
    """In a script: here a worker is lost with all that it holds, and another takes its place.

    Attributes
    ----------
    worker : int or None
        Which one; None: all of them.
    """

    worker: int | None = None


@dataclass(frozen=True, slots=True)
class Restart:
    """In a script: here the driver is lost too, and the job is started again from its last commit."""


@dataclass(frozen=True, slots=True)
class Switch:
    """In a script: from here on all operations that can change their form have this one.

    Attributes
    ----------
    to : str or None
        ``"batch"`` or ``"record"``; None: the other one.
    """

    to: str | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """In a script: nothing comes for so long; epochs are committed meanwhile, and partitions become idle.

    Attributes
    ----------
    time : str or float
        A duration such as ``"5s"``, or seconds.
    """

    time: str | int | float = "5s"


@dataclass(frozen=True, slots=True)
class Burst:
    """In a script: the row that follows comes so many times, all at once."""

    copies: int = 1_000


CRASH = Crash()
RESTART = Restart()
SWITCH = Switch()
PAUSE = Pause()
BURST = Burst()

Deed = Crash | Restart | Switch
"""Marks at which something is done to the job."""
_MARKS = (Crash, Restart, Switch, Pause, Burst)


@dataclass(frozen=True, slots=True)
class Script:
    """A scripted input taken apart: rows and times for the source, and what is done when."""

    items: list[object]
    deeds: list[tuple[int, Deed]]
    """After the start, in microseconds."""


def read_script(items: Iterable[object]) -> Script:
    """Take a list of rows and marks apart."""
    found: list[object] = []
    deeds: list[tuple[int, Deed]] = []
    at_us, copies = 0, 0

    def wait(until_us: int) -> None:
        nonlocal at_us
        at_us = until_us
        found.append(At(at_us / 1e6))

    for item in items:
        if copies and isinstance(item, (At, *_MARKS)):
            raise InvalidOption(option="BURST", given=item, allowed="a row behind it")
        match item:
            case At(time=time):
                at_us = parse_us(time, option="At", allow_zero=True)
                found.append(item)
            case Pause(time=time):
                wait(at_us + parse_us(time, option="PAUSE"))
            case Burst(copies=many):
                copies = Whole(1, 10_000_000).read("BURST", many)
            case Crash() | Restart() | Switch():
                _check(item)
                deeds.append((at_us + STEP_US, item))
                wait(at_us + 2 * STEP_US)
            case _:
                found += [item] * (copies or 1)
                copies = 0
    if copies:
        raise InvalidOption(option="BURST", given="the end of the script", allowed="a row behind it")
    return Script(found, deeds)


def _check(deed: Deed) -> None:
    if isinstance(deed, Switch) and deed.to not in (None, *(form.value for form in Form)):
        raise InvalidOption(option="SWITCH", given=deed.to, allowed="batch, record; nothing for the other one")
