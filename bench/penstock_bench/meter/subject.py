"""What is measured: a workload as the engines see it, lines in, rows out, and which input each row accounts for.

The meter judges every engine's rows through a `Subject`; `penstock_bench.engines.subjects` has those there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from penstock.connectors.base import Sink
from penstock.connectors.generator import Generator
from penstock.connectors.rates import RateSchedule
from penstock.errors import InvalidOption
from penstock.pipeline.pipeline import Pipeline
from penstock.types import Record
from penstock_bench.meter.timeline import Timeline, Times
from penstock_bench.workloads import Comparison
from penstock_bench.workloads.base import REPLAY_RECORDS

Rate = float | RateSchedule | None
"""Events per second, a schedule, or None for the workload's own."""


@dataclass(frozen=True)
class Input:
    """Everything that an engine is given: the records of all sources in the order of their scheduled times."""

    generators: tuple[Generator, ...]

    @cached_property
    def total(self) -> int:
        totals = [generator.total for generator in self.generators]
        if None in totals or any(generator.schedule is None for generator in self.generators):
            raise InvalidOption(option="input", given=totals, allowed="sources with a rate that end")
        return sum(filter(None, totals))

    @cached_property
    def _each_us(self) -> Times:
        """When the records are due, one source behind the other."""
        each = [g.schedule.times_us(0, g.total or 0) for g in self.generators if g.schedule is not None]
        return np.concatenate(each) if self.total else np.empty(0, np.int64)

    @cached_property
    def _order(self) -> Times:
        """Places of the records, one source behind the other, in the order of time."""
        return np.argsort(self._each_us, kind="stable")

    @cached_property
    def times_us(self) -> Times:
        """When each is due, from the start of the schedule."""
        return self._each_us[self._order]

    def records(self, first: int, count: int, start_us: int) -> list[Record]:
        """Make the records from one on; ``start_us`` is what their event times count from."""
        if len(self.generators) == 1:
            return self.generators[0].records(first, min(count, self.total - first), start_us)
        places, begin = self._order[first : first + count], 0
        rows: list[Any] = [None] * len(places)
        for generator in self.generators:
            end = begin + (generator.total or 0)
            # A source's records keep their order, so those of a stretch follow each other in it.
            mine = np.flatnonzero((places >= begin) & (places < end))
            if len(mine):
                made = generator.records(int(places[mine[0]]) - begin, len(mine), start_us)
                for place, record in zip(mine.tolist(), made, strict=True):
                    rows[place] = record
            begin = end
        return rows

    def replay(self, start_us: int) -> Iterator[Record]:
        for first in range(0, self.total, REPLAY_RECORDS):
            yield from self.records(first, REPLAY_RECORDS, start_us)


class Came(NamedTuple):
    """What came out of an engine."""

    rows: Sequence[tuple[int, Sequence[Any]]]
    """When each row left, and its values."""
    start_us: int
    """When the schedule began."""
    event_start_us: int
    """What the event times count from."""
    partitions: int = 1
    """Of the input; order is kept within each."""


class Subject(ABC):
    """A workload to run on engines."""

    name: str
    """In results and on the command line."""
    columns: tuple[str, ...]
    """Of a row that leaves an engine."""
    constants: Mapping[str, str] = {}
    """The first columns, where all rows have the same values in them; Penstock's pipeline does not carry those."""
    stateful: tuple[str, ...] = ()
    """Operations with state that an engine needs for it beside running counts: ``window``, ``join``."""
    loads: tuple[str, ...] = ()
    """Transformations that are made to cost more than their own work."""
    not_in_sql: str | None = None
    """Why it cannot be written in SQL; None where it can."""
    nested: str = ""
    """An operation with state that reads what came out of another one; empty if there is none."""
    branches: bool = False
    """Whether a source is read more than once, or there is more than one."""

    @property
    def reference(self) -> str:
        """What `subject` takes for it, also in another process."""
        return self.name

    @abstractmethod
    def input(self, rate: Rate, seconds: float | None, *, total: int | None = None, seed: int = 0) -> Input:
        """The input: so many seconds of a rate (None: the workload's own), or so many records."""

    @abstractmethod
    def pipeline(self, rate: Rate, seconds: float, sink: Sink, *, seed: int = 0) -> Pipeline:
        """The workload as a pipeline of Penstock's."""

    @abstractmethod
    def line(self, record: Record) -> bytes:
        """The line that an engine reads for a record, without its end."""

    def closing(self, end_us: int) -> bytes | None:
        """A last line that brings event time past everything, for engines whose windows wait for that."""
        return None

    def missing(self) -> str | None:
        """What a run needs beside the engine and is not installed here; None if nothing is missing."""
        return None

    def beside(self) -> AbstractContextManager[Mapping[str, object]]:
        """Run what the workload needs beside the engine; entered around a run, gives the settings of what runs."""
        return nullcontext({})

    @abstractmethod
    def specification(self) -> dict[str, Any]:
        """What a program is told of it, under ``workload`` its kind; plain values."""

    @abstractmethod
    def judge(self, given: Input, came: Came) -> tuple[Timeline, Comparison]:
        """Find out when the effect of each event was out, and compare all that came out with the exact result."""
