"""The workloads that engines have programs for: lines in, rows out, and which input each row accounts for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from penstock.connectors.base import Sink
from penstock.pipeline.pipeline import Pipeline
from penstock.types import Record
from penstock_bench.engines import redis_server
from penstock_bench.meter.errors import UnknownWorkload
from penstock_bench.meter.subject import Came, Input, Rate, Subject
from penstock_bench.meter.timeline import NEVER_US, Shown, Timeline
from penstock_bench.workloads import AT_SINK, SERVED, WORKLOADS, Comparison, Workload, lookup

RATE_EPS = 10_000.0  # of workloads that have none of their own
FILES = (".json", ".yaml", ".yml")


class Built(Subject):
    """A workload that is written in Python, with a program for every engine.

    Rows are running counts of groups, each of which accounts for so many records of its group; or they begin with the
    number of their record, its place in the input.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.workload: Workload[Any] = _BUILT[name]
        self.columns, self.not_in_sql = self.workload.columns, self.workload.not_in_sql
        assert self.workload.line is not None
        self._line = self.workload.line

    def input(self, rate: Rate, seconds: float | None, *, total: int | None = None, seed: int = 0) -> Input:
        rate = RATE_EPS if rate is None else rate
        return Input((self.workload.source(rate, seconds=seconds, total=total, seed=seed),))

    def pipeline(self, rate: Rate, seconds: float, sink: Sink, *, seed: int = 0) -> Pipeline:
        return self.workload.pipeline(RATE_EPS if rate is None else rate, sink, seconds=seconds, seed=seed)

    def line(self, record: Record) -> bytes:
        return self._line(record)

    def specification(self) -> dict[str, Any]:
        return {"workload": self.workload.name.partition("-")[0], **self.workload.program()}

    def missing(self) -> str | None:
        return redis_server.missing() if self.name in SERVED else None

    def beside(self) -> AbstractContextManager[Mapping[str, object]]:
        return redis_server.serving(lookup.TABLE) if self.name in SERVED else super().beside()

    def judge(self, given: Input, came: Came) -> tuple[Timeline, Comparison]:
        exact = self.workload.expected(given.replay(came.event_start_us))
        rows = (dict(zip(self.columns, values, strict=True)) for _, values in came.rows)
        found = self.workload.compare(exact, rows, came.partitions)
        times_us = came.start_us + given.times_us
        if self.workload.due is not None:
            due_us = self.workload.due(given.replay(came.event_start_us), times_us)
            shown = (Shown(at_us, tuple(group), count) for at_us, (*group, count) in came.rows)
            return Timeline.of(due_us, shown), found
        numbers = np.fromiter(exact, np.int64)
        seen_us = np.full(given.total, NEVER_US, np.int64)
        known = [(values[0], at_us) for at_us, values in came.rows if 0 <= values[0] < given.total]
        places, seen = np.array(known, np.int64).reshape(-1, 2).T
        np.minimum.at(seen_us, places, seen)
        return Timeline(times_us[numbers], seen_us[numbers]), found


_BUILT: dict[str, Workload[Any]] = {
    **{name: shown for name, each in WORKLOADS.items() if (shown := AT_SINK.get(name, each)).line is not None},
    **SERVED,
}
"""By name; `yahoo` has a row whenever a count changes, which a store would upsert."""


def subject_names() -> list[str]:
    return list(_BUILT)


def subject(name_or_file: str) -> Subject:
    """Return the workload of a name, or the one that a file describes."""
    if name_or_file in _BUILT:
        return Built(name_or_file)
    if Path(name_or_file).suffix not in FILES and not Path(name_or_file).exists():
        raise UnknownWorkload(given=name_or_file, available=_BUILT)
    from penstock_bench.engines.file_subject import FileSubject

    return FileSubject(name_or_file)
