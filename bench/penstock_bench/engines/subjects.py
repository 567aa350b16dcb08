"""The workloads that engines have queries for, each with its lines and what its rows say about the input."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from penstock.connectors.base import Sink
from penstock.demo.scoring import FEATURE_NAMES, HIDDEN_WEIGHTS, OUTPUT_WEIGHTS, SCALE
from penstock.pipeline.pipeline import Pipeline
from penstock.types import Record
from penstock_bench.meter.errors import UnknownWorkload
from penstock_bench.meter.subject import Came, Input, Rate, Subject
from penstock_bench.meter.timeline import NEVER_US, Shown, Timeline, Times
from penstock_bench.workloads import SERVED, WORKLOADS, Comparison, Workload, lookup, yahoo
from penstock_bench.workloads.grep import NEEDLE
from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD, WINDOW_MS

RATE_EPS = 10_000.0
"""Of workloads that have none of their own."""
FILES = (".json", ".yaml", ".yml")
Group = tuple[str, int]
"""What a row counts: a campaign and its window, a word, the number of a line."""


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

    def judge(self, given: Input, came: Came) -> tuple[Timeline, Comparison]:
        exact = self.workload.expected(given.replay(came.event_start_us))
        found = self.workload.compare(exact, (self._row(values) for _, values in came.rows), came.partitions)
        return self.timeline(given, came), found

    @abstractmethod
    def timeline(self, given: Input, came: Came) -> Timeline:
        """Find out when the effect of each event was out; the parameters are those of `judge`."""

    def _row(self, values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.columns, values, strict=True))


class _Grouped(_Built):
    """Rows are counts of groups; each accounts for so many of its group's records."""

    def timeline(self, given: Input, came: Came) -> Timeline:
        due_us = self.due(given.replay(came.event_start_us), came.start_us + given.times_us)
        return Timeline.of(due_us, (Shown(at_us, *self.shown(values)) for at_us, values in came.rows))

    @abstractmethod
    def due(self, records: Iterable[Record], times_us: Times) -> dict[Group, Times]:
        """Scheduled times of the records that count in each group, ascending."""

    @abstractmethod
    def shown(self, values: Sequence[Any]) -> tuple[Group, int]:
        """The group of a row that left, and how many of its records it accounts for."""


class _Numbered(_Built):
    """Every record has one row, which begins with the record's number: its place in the input."""

    def timeline(self, given: Input, came: Came) -> Timeline:
        seen_us = np.full(given.total, NEVER_US, np.int64)
        known = [(values[0], at_us) for at_us, values in came.rows if 0 <= values[0] < given.total]
        numbers, times_us = np.array(known, np.int64).reshape(-1, 2).T
        np.minimum.at(seen_us, numbers, times_us)
        return Timeline(came.start_us + given.times_us, seen_us)


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
        return yahoo.due(records, times_us)

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
        from penstock_bench.engines.redis_server import missing

        return missing()

    def beside(self) -> AbstractContextManager[Mapping[str, object]]:
        from penstock_bench.engines.redis_server import serving

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
    from penstock_bench.engines.file_subject import FileSubject

    return FileSubject(name_or_file)
