"""Workloads as the engines see them: lines in, rows out, and which input each row accounts for.

An engine reads lines of text and lets rows leave; what a row says about the input is told here, once for all engines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from penstock.bench.engines.errors import UnknownWorkload
from penstock.bench.timeline import Times
from penstock.bench.workloads import WORKLOADS, Comparison, Workload
from penstock.bench.workloads.grep import NEEDLE
from penstock.bench.workloads.yahoo import CAMPAIGN_OF_AD, WINDOW_MS
from penstock.connectors.base import Sink
from penstock.connectors.generator import Generator
from penstock.connectors.rates import RateSchedule
from penstock.pipeline.stream import Pipeline
from penstock.types import Record

Group = tuple[str, int]
"""What a row counts: a campaign and its window, a word, the number of a line."""


class Subject(ABC):
    """A workload to run on engines.

    Attributes
    ----------
    name : str
        Name in results and on the command line.
    columns : tuple of str
        Columns of a row that leaves an engine.
    """

    name: str
    columns: ClassVar[tuple[str, ...]]

    @abstractmethod
    def source(
        self, rate: float | RateSchedule | None, seconds: float | None, *, total: int | None = None, seed: int = 0
    ) -> Generator:
        """The input: so many seconds of a rate, or so many records."""

    @abstractmethod
    def pipeline(self, rate: float | RateSchedule, seconds: float, sink: Sink, *, seed: int = 0) -> Pipeline:
        """The workload as a pipeline of Penstock's."""

    @property
    def reference(self) -> str:
        """What `subject` takes for it, also in another process."""
        return self.name

    @abstractmethod
    def line(self, record: Record) -> bytes:
        """The line that an engine reads for a record, without its end."""

    @abstractmethod
    def due(self, records: Iterable[Record], times_us: Times) -> dict[Group, Times]:
        """Scheduled times of the records that count in each group, ascending."""

    @abstractmethod
    def shown(self, values: Sequence[Any]) -> tuple[Group, int]:
        """The group of a row that left, and how many of its records it accounts for."""

    @abstractmethod
    def compare(self, records: Iterable[Record], rows: Iterable[Sequence[Any]], partitions: int) -> Comparison:
        """Compare what left with the exact result."""


class _Built(Subject):
    """A workload that is written in Python, with a query of its own for every engine."""

    workload: ClassVar[Workload[Any]]

    def __init__(self, name: str) -> None:
        self.name = name

    def source(
        self, rate: float | RateSchedule | None, seconds: float | None, *, total: int | None = None, seed: int = 0
    ) -> Generator:
        return self.workload.source(rate, seconds=seconds, total=total, seed=seed)

    def pipeline(self, rate: float | RateSchedule, seconds: float, sink: Sink, *, seed: int = 0) -> Pipeline:
        return self.workload.pipeline(rate, sink, seconds=seconds, seed=seed)

    def compare(self, records: Iterable[Record], rows: Iterable[Sequence[Any]], partitions: int) -> Comparison:
        exact = self.workload.expected(records)
        return self.workload.compare(exact, (self._row(row) for row in rows), partitions)

    def _row(self, values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.columns, values, strict=True))


class _Event(msgspec.Struct):
    ad_id: str
    event_type: str
    event_time: int


class _Yahoo(_Built):
    """Views by campaign and window of 10 s; a row whenever a count changes, which the store would upsert."""

    workload = WORKLOADS["yahoo-updates"]
    columns = ("campaign_id", "window_start", "count")

    def line(self, record: Record) -> bytes:
        line: bytes = record.value
        return line

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


class _WordCount(_Built):
    workload = WORKLOADS["wordcount"]
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


class _Grep(_Built):
    workload = WORKLOADS["grep"]
    columns = ("number", "line")

    def line(self, record: Record) -> bytes:
        return b"%d\t%b" % (record.number, record.line.encode())

    def due(self, records: Iterable[Record], times_us: Times) -> dict[Group, Times]:
        return {
            ("", record.number): np.array([time_us], np.int64)
            for record, time_us in zip(records, times_us.tolist(), strict=True)
            if NEEDLE in record.line.split(" ")
        }

    def shown(self, values: Sequence[Any]) -> tuple[Group, int]:
        return ("", values[0]), 1


def _arrays(groups: dict[Group, list[int]]) -> dict[Group, Times]:
    return {group: np.array(times_us, np.int64) for group, times_us in groups.items()}


_BUILT: dict[str, type[_Built]] = {
    "yahoo": _Yahoo,
    "yahoo-updates": _Yahoo,
    "wordcount": _WordCount,
    "grep": _Grep,
}


def subject_names() -> list[str]:
    """Names of the workloads that engines have queries for."""
    return list(_BUILT)


def subject(name_or_file: str) -> Subject:
    """Return the workload of a name, or that a file describes."""
    if name_or_file in _BUILT:
        return _BUILT[name_or_file](name_or_file)
    path = Path(name_or_file)
    if path.suffix in (".json", ".yaml", ".yml") or path.exists():
        raise UnknownWorkload(given=name_or_file, available=_BUILT)
    raise UnknownWorkload(given=name_or_file, available=_BUILT)
