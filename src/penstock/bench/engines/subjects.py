"""Workloads as the engines see them: lines in, rows out, and which input each row accounts for.

An engine reads lines of text and lets rows leave; what a row says about the input is told here, once for all engines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from penstock.bench.engines.errors import UnknownWorkload
from penstock.bench.timeline import NEVER_US, Shown, Timeline, Times
from penstock.bench.workloads import SERVED, WORKLOADS, Comparison, Workload, lookup
from penstock.bench.workloads.base import REPLAY_RECORDS
from penstock.bench.workloads.grep import NEEDLE
from penstock.bench.workloads.scoring import FEATURE_NAMES, HIDDEN_WEIGHTS, OUTPUT_WEIGHTS, SCALE
from penstock.bench.workloads.yahoo import CAMPAIGN_OF_AD, WINDOW_MS
from penstock.connectors.base import Sink
from penstock.connectors.generator import Generator
from penstock.connectors.rates import RateSchedule
from penstock.errors import InvalidOption
from penstock.pipeline.stream import Pipeline
from penstock.types import Record

Rate = float | RateSchedule | None
"""Events per second, a schedule, or None for the workload's own."""
RATE_EPS = 10_000.0
"""Of workloads that have none of their own."""
FILES = (".json", ".yaml", ".yml")
Group = tuple[str, int]
"""What a row counts: a campaign and its window, a word, the number of a line."""


@dataclass(frozen=True)
class Input:
    """Everything that an engine is given: the records of all sources in the order of their scheduled times."""

    generators: tuple[Generator, ...]

    @cached_property
    def total(self) -> int:
        """How many there are."""
        totals = [generator.total for generator in self.generators]
        if None in totals or any(generator.schedule is None for generator in self.generators):
            raise InvalidOption(option="input", given=totals, allowed="sources with a rate that end")
        return sum(filter(None, totals))

    @cached_property
    def times_us(self) -> Times:
        """When each is due, from the start of the schedule."""
        times_us = self._all_times_us
        return times_us if len(self.generators) == 1 else times_us[self._order]

    @cached_property
    def _all_times_us(self) -> Times:
        total = self.total
        each = [g.schedule.times_us(0, g.total or 0) for g in self.generators if g.schedule is not None]
        return np.concatenate(each) if total else np.empty(0, np.int64)

    @cached_property
    def _order(self) -> Times:
        """Places of the records, one source behind the other, in the order of time."""
        return np.argsort(self._all_times_us, kind="stable")

    def records(self, first: int, count: int, start_us: int) -> list[Record]:
        """Make the records from one on; ``start_us`` is what their event times count from."""
        count = min(count, self.total - first)
        if len(self.generators) == 1:
            return self.generators[0].records(first, count, start_us)
        places = self._order[first : first + count]
        rows: list[Any] = [None] * len(places)
        at = 0
        for generator in self.generators:
            end = at + (generator.total or 0)
            # A source's records keep their order, so those of a stretch follow each other in it.
            mine = np.flatnonzero((places >= at) & (places < end))
            if len(mine):
                made = generator.records(int(places[mine[0]]) - at, len(mine), start_us)
                for place, record in zip(mine.tolist(), made, strict=True):
                    rows[place] = record
            at = end
        return rows

    def replay(self, start_us: int) -> Iterator[Record]:
        """Make all records, one after the other."""
        for first in range(0, self.total, REPLAY_RECORDS):
            yield from self.records(first, REPLAY_RECORDS, start_us)


class Subject(ABC):
    """A workload to run on engines.

    Attributes
    ----------
    name : str
        Name in results and on the command line.
    columns : tuple of str
        Columns of a row that leaves an engine.
    constants : mapping
        The first columns, where all rows have the same values in them; Penstock's pipeline does not carry those.
    stateful : tuple of str
        Operations with state that an engine needs for it beside running counts: ``window``, ``join``.
    loads : tuple of str
        Transformations that are made to cost more than their own work.
    not_in_sql : str or None
        Why it cannot be written in SQL; None where it can.
    """

    name: str
    columns: ClassVar[tuple[str, ...]]
    constants: Mapping[str, str] = {}
    stateful: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    not_in_sql: str | None = None

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
        del end_us
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
    def judge(
        self,
        given: Input,
        rows: Sequence[tuple[int, Sequence[Any]]],
        start_us: int,
        event_start_us: int,
        partitions: int,
    ) -> tuple[Timeline, Comparison]:
        """Find out when the effect of each event was out, and compare all that came out with the exact result.

        Parameters
        ----------
        given : Input
            What the engine was given.
        rows : sequence of (int, list)
            When each row left, and its values.
        start_us, event_start_us : int
            When the schedule began, and what the event times count from.
        partitions : int
            Partitions of the input; order is kept within each.
        """


class _Built(Subject):
    """A workload that is written in Python, with a query of its own for every engine."""

    workload: ClassVar[Workload[Any]]
    kind: ClassVar[str]

    def __init__(self, name: str) -> None:
        self.name = name

    def input(self, rate: Rate, seconds: float | None, *, total: int | None = None, seed: int = 0) -> Input:
        rate = RATE_EPS if rate is None else rate
        return Input((self.workload.source(rate, seconds=seconds, total=total, seed=seed),))

    def pipeline(self, rate: Rate, seconds: float, sink: Sink, *, seed: int = 0) -> Pipeline:
        return self.workload.pipeline(RATE_EPS if rate is None else rate, sink, seconds=seconds, seed=seed)

    def specification(self) -> dict[str, Any]:
        return {"workload": self.kind}

    def judge(
        self,
        given: Input,
        rows: Sequence[tuple[int, Sequence[Any]]],
        start_us: int,
        event_start_us: int,
        partitions: int,
    ) -> tuple[Timeline, Comparison]:
        exact = self.workload.expected(given.replay(event_start_us))
        found = self.workload.compare(exact, (self._row(values) for _, values in rows), partitions)
        return self.timeline(given, rows, start_us, event_start_us), found

    @abstractmethod
    def timeline(
        self, given: Input, rows: Sequence[tuple[int, Sequence[Any]]], start_us: int, event_start_us: int
    ) -> Timeline:
        """Find out when the effect of each event was out; the parameters are those of `judge`."""

    def _row(self, values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.columns, values, strict=True))


class _Grouped(_Built):
    """Rows are counts of groups; each accounts for so many of its group's records."""

    def timeline(
        self, given: Input, rows: Sequence[tuple[int, Sequence[Any]]], start_us: int, event_start_us: int
    ) -> Timeline:
        due_us = self.due(given.replay(event_start_us), start_us + given.times_us)
        return Timeline.of(due_us, (Shown(at_us, *self.shown(values)) for at_us, values in rows))

    @abstractmethod
    def due(self, records: Iterable[Record], times_us: Times) -> dict[Group, Times]:
        """Scheduled times of the records that count in each group, ascending."""

    @abstractmethod
    def shown(self, values: Sequence[Any]) -> tuple[Group, int]:
        """The group of a row that left, and how many of its records it accounts for."""


class _Numbered(_Built):
    """Every record has one row, which begins with the record's number: its place in the input."""

    def timeline(
        self, given: Input, rows: Sequence[tuple[int, Sequence[Any]]], start_us: int, event_start_us: int
    ) -> Timeline:
        del event_start_us
        seen_us = np.full(given.total, NEVER_US, np.int64)
        known = [(values[0], at_us) for at_us, values in rows if 0 <= values[0] < given.total]
        numbers, times_us = np.array(known, np.int64).reshape(-1, 2).T
        np.minimum.at(seen_us, numbers, times_us)
        return Timeline(start_us + given.times_us, seen_us)


class _Event(msgspec.Struct):
    ad_id: str
    event_type: str
    event_time: int


class _Yahoo(_Grouped):
    """Views by campaign and window of 10 s; a row whenever a count changes, which the store would upsert."""

    workload = WORKLOADS["yahoo-updates"]
    kind = "yahoo"
    columns = ("campaign_id", "window_start", "count")

    def line(self, record: Record) -> bytes:
        line: bytes = record.value
        return line

    def specification(self) -> dict[str, Any]:
        return {**super().specification(), "ads": CAMPAIGN_OF_AD}

    def due(self, records: Iterable[Record], times_us: Times) -> dict[Group, Times]:
        decode = msgspec.json.Decoder(_Event).decode
        groups: defaultdict[Group, list[int]] = defaultdict(list)
        for record, time_us in zip(records, times_us.tolist(), strict=True):
            event = decode(record.value)
            if event.event_type == "view":
                start_us = event.event_time // WINDOW_MS * WINDOW_MS * 1000
                groups[CAMPAIGN_OF_AD[event.ad_id], start_us].append(time_us)
        return _arrays(groups)

    def shown(self, values: Sequence[Any]) -> tuple[Group, int]:
        campaign, start_us, count = values
        return (campaign, start_us), count

    def _row(self, values: Sequence[Any]) -> dict[str, Any]:
        # Foreign engines name a window by its start alone.
        return {**super()._row(values), "window_end": values[1] + WINDOW_MS * 1000}


class _WordCount(_Grouped):
    workload = WORKLOADS["wordcount"]
    kind = "wordcount"
    columns = ("word", "count")

    def line(self, record: Record) -> bytes:
        line: bytes = record.value.encode()
        return line

    def due(self, records: Iterable[Record], times_us: Times) -> dict[Group, Times]:
        words: defaultdict[str, list[int]] = defaultdict(list)
        for record, time_us in zip(records, times_us.tolist(), strict=True):
            for word in record.value.split(" "):
                words[word].append(time_us)
        return _arrays({(word, 0): times for word, times in words.items()})

    def shown(self, values: Sequence[Any]) -> tuple[Group, int]:
        word, count = values
        return (word, 0), count


class _Grep(_Grouped):
    workload = WORKLOADS["grep"]
    kind = "grep"
    columns = ("number", "line")

    def line(self, record: Record) -> bytes:
        return b"%d\t%b" % (record.number, record.line.encode())

    def specification(self) -> dict[str, Any]:
        return {**super().specification(), "needle": NEEDLE}

    def due(self, records: Iterable[Record], times_us: Times) -> dict[Group, Times]:
        return {
            ("", record.number): np.array([time_us], np.int64)
            for record, time_us in zip(records, times_us.tolist(), strict=True)
            if NEEDLE in record.line.split(" ")
        }

    def shown(self, values: Sequence[Any]) -> tuple[Group, int]:
        return ("", values[0]), 1


class _Scoring(_Numbered):
    workload = WORKLOADS["scoring"]
    kind = "scoring"
    columns = ("number", "score")
    not_in_sql = "its model is a function in Python, which SQL does not call"
    _features = staticmethod(attrgetter("number", *FEATURE_NAMES))

    def line(self, record: Record) -> bytes:
        return b"%d,%d,%d,%d,%d,%d,%d,%d,%d" % self._features(record)

    def specification(self) -> dict[str, Any]:
        return {**super().specification(), "hidden": HIDDEN_WEIGHTS, "output": OUTPUT_WEIGHTS, "scale": SCALE}


class _Lookup(_Numbered):
    workload = SERVED["lookup"]
    kind = "lookup"
    columns = ("number", "segment")
    not_in_sql = "Redis is asked by a function in Python, which SQL does not call"

    def line(self, record: Record) -> bytes:
        return b"%d,%d" % (record.number, record.user)

    def missing(self) -> str | None:
        from penstock.bench.redis_server import missing

        return missing()

    def beside(self) -> AbstractContextManager[Mapping[str, object]]:
        from penstock.bench.redis_server import serving

        return serving(lookup.TABLE)

    def specification(self) -> dict[str, Any]:
        return {**super().specification(), "redis": lookup.address()}


def _arrays(groups: dict[Group, list[int]]) -> dict[Group, Times]:
    return {group: np.array(times_us, np.int64) for group, times_us in groups.items()}


_BUILT: dict[str, type[_Built]] = {
    "yahoo": _Yahoo,
    "yahoo-updates": _Yahoo,
    "wordcount": _WordCount,
    "grep": _Grep,
    "scoring": _Scoring,
    "lookup": _Lookup,
}


def subject_names() -> list[str]:
    """Names of the workloads that engines have queries for."""
    return list(_BUILT)


def subject(name_or_file: str) -> Subject:
    """Return the workload of a name, or the one that a file describes."""
    if name_or_file in _BUILT:
        return _BUILT[name_or_file](name_or_file)
    if Path(name_or_file).suffix not in FILES and not Path(name_or_file).exists():
        raise UnknownWorkload(given=name_or_file, available=_BUILT)
    from penstock.bench.engines.file_subject import FileSubject

    return FileSubject(name_or_file)
