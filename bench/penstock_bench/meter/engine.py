"""What an engine is to the benchmarks: a name, variants, a version, and a run that hands back what came out.

The runner finds engines through the entry points of the group ``penstock.engines`` and evaluates all of them alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from penstock.errors import InvalidOption, JavaMissing, nearest
from penstock.runtime.java import check_java
from penstock_bench.meter.errors import UnknownEngine
from penstock_bench.meter.rows import ProcessUsage
from penstock_bench.meter.subject import Rate, Subject

__all__ = ["Engine", "Observation", "Output", "Rate", "RunOptions"]

WARM_UP_S = 8.0
"""Cut from every run of every engine: the schedule's first seconds, at the same rate, with the engine up before."""
PARALLELISM = 2


@dataclass(frozen=True)
class RunOptions:
    """How an engine is run."""

    warm_up_s: float = WARM_UP_S
    parallelism: int = PARALLELISM
    """Workers, slots or threads, in the engine's own words."""
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    """The engine's own options."""
    tell: Callable[[str, float | None], None] = lambda *_: None
    """Is told what the run is doing, and how many seconds that will take where it is known."""


class Output(NamedTuple):
    """A row that left an engine, and when; values are in the order of the subject's columns."""

    out_us: int
    values: list[Any]


@dataclass(frozen=True)
class Observation:
    """What a run gave: enough to check it and to measure it without asking the engine."""

    start_us: int
    """When the schedule began."""
    event_start_us: int
    """The start that the input's event times count from."""
    outputs: list[Output]
    """In the order of time."""
    partitions: int
    """Of the input; order is kept within each."""
    processes: list[ProcessUsage]
    """From the end of the warm-up on."""
    feed_lag_ms: float | None = None
    """99th percentile of how late the feeder handed an event over; None where the engine makes its own input."""
    settings: dict[str, object] = field(default_factory=dict)
    """All that is not the engine's default."""
    notes: list[str] = field(default_factory=list)


def no_java() -> str | None:
    """Why an engine that needs Java cannot run here; None if it can."""
    try:
        check_java()
    except JavaMissing as error:
        return str(error)
    return None


def cannot(subject: Subject, able: Collection[str] = (), *, loads: str | None = None) -> str | None:
    """Why an engine cannot run a workload that is able to do these operations with state; None if it can.

    ``loads`` says why it cannot run ``cpu_load`` and the like, where that is so.
    """
    if (reason := subject.missing()) is not None:
        return reason
    missing = [each for each in subject.stateful if each not in able]
    if missing:
        return f"its {' and '.join(missing)} of workload files is not built for this engine"
    if subject.loads and loads:
        return f"it has no cpu_load, mem_load and disk_load ({', '.join(subject.loads)}): {loads}"
    return None


class Engine(ABC):
    """An engine in one of its variants."""

    name: ClassVar[str]
    variants: ClassVar[Mapping[str, str]]
    """With a line on each; the first is the default."""
    options: ClassVar[Mapping[str, str]] = {}
    """The engine's own, with what they allow."""
    form: str = "record"
    """How results leave: ``record`` by record, or once per ``batch``; ``adaptive`` for both."""

    def __init__(self, variant: str | None = None) -> None:
        if variant is not None and variant not in self.variants:
            known = [f"{self.name}:{each}" for each in self.variants]
            raise UnknownEngine(given=f"{self.name}:{variant}", what="engine", available=known)
        self.variant = variant or next(iter(self.variants))

    @property
    def label(self) -> str:
        """Name with the variant, as the command line takes it."""
        return f"{self.name}:{self.variant}"

    def prepare(self, tell: Callable[[str, float | None], None]) -> None:
        """Make what the engine needs and is not there yet, such as its environment; called before all else."""

    @abstractmethod
    def version(self) -> str:
        """Version of the engine that `run` uses."""

    @abstractmethod
    def supports(self, subject: Subject) -> str | None:
        """Why this engine cannot run a workload here; None if it can."""

    @abstractmethod
    def run(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Observation:
        """Run a workload for the warm-up and ``seconds`` more, to the last result, and return what came out."""

    def check(self, settings: Mapping[str, str]) -> None:
        """Refuse options that the engine does not have."""
        for name, value in settings.items():
            if name not in self.options:
                known = ", ".join(f"{each} ({allowed})" for each, allowed in self.options.items()) or "none"
                allowed = f"options of '{self.name}': {known}"
                raise InvalidOption(option=name, given=value, allowed=allowed, hint=nearest(name, self.options))
