"""Throughput at the sink, read alike for every engine: how many events the rows that have left account for, and when.

A row of a running count accounts for what its count has grown by, any other row for one result; `Workload.yields` says
how many results an event has. Our sink counts rows as they come; those of other engines are counted from their log.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.connectors.base import Sink, SinkWriter, Stager, WriterContext
from penstock.types import Record, Schema
from penstock_bench.foreign.programs.outlog import OutLog, unique_log
from penstock_bench.meter.engine import Output
from penstock_bench.meter.stamped import PATTERN
from penstock_bench.meter.timeline import Times
from penstock_bench.workloads import Workload


def by_place(columns: Sequence[str]) -> Callable[..., Callable[[Any], Any]]:
    """What makes readers of columns, by their names, of rows that are lists in this order."""
    return lambda *names: itemgetter(*(columns.index(name) for name in names))


class Growth:
    """Counts the results in rows; ``get`` makes a reader of columns by their names."""

    def __init__(self, group: Sequence[str], get: Callable[..., Callable[[Any], Any]] = attrgetter) -> None:
        self._columns = (get(*group), get("count")) if group else None
        self._highest: dict[Hashable, int] = {}

    def take(self, rows: Sequence[Any]) -> int:
        """Return how many results are new in these rows."""
        if self._columns is None:
            return len(rows)
        (group, count), highest, grown = self._columns, self._highest, 0
        for row in rows:
            key, now = group(row), count(row)
            before = highest.get(key, 0)
            if now > before:
                highest[key] = now
                grown += now - before
        return grown


class Counted(NamedTuple):
    """Events that were out over time."""

    at_us: Times
    events: Times
    """Out by then, as far as results tell."""

    @staticmethod
    def of(results: Iterable[tuple[int, int]], yields: float) -> Counted:
        ordered = np.array(sorted(results), dtype=np.int64).reshape(-1, 2)
        return Counted(ordered[:, 0], np.round(np.cumsum(ordered[:, 1]) / yields).astype(np.int64))

    def out(self, at_us: Times) -> Times:
        """How many events were out at these moments."""
        found: Times = np.append(0, self.events)[np.searchsorted(self.at_us, at_us, side="right")]
        return found

    def rate_eps(self, first_us: int, end_us: int) -> float:
        """Events per second whose result came out in this time, from one output to another.

        It begins with the last output before this time, if there was one: what comes in large lumps after long
        pauses is not divided by the time of the lumps alone.
        """
        places = np.maximum(np.searchsorted(self.at_us, [first_us, end_us], side="right") - 1, 0)
        ends = self.at_us[places] if len(self.at_us) else np.zeros(2, np.int64)
        (events,), (took_us,) = np.diff(self.out(ends)), np.diff(ends)
        return float(events) * 1e6 / float(took_us) if took_us > 0 else 0.0


class Tally(Sink):
    """Takes rows and keeps nothing but how many results there were, and when; also in slots."""

    def __init__(self, directory: Path, workload: Workload[Any]) -> None:
        self._directory, self._group, self._yields = directory, workload.group, workload.yields

    def _writer(self) -> SinkWriter:
        return _TallyWriter(unique_log(str(self._directory), at_once=True), Growth(self._group))

    @property
    def kind(self) -> str:
        return "tally"

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        return self._writer()

    def stager(self, schema: Schema, operation: str) -> Stager:
        if self._group:
            # Only the worker sees all rows of a group.
            return super().stager(schema, operation)
        # Nothing is promised of these rows, so a slot may count them itself; it makes rows of them as any sink would.
        writer = self._writer()

        def stage(batch: pa.RecordBatch) -> bytes:
            writer.write(schema.to_rows(batch))
            return b""

        return stage

    def counted(self) -> Counted:
        """Read what all writers have counted so far."""
        lines = [line for path in self._directory.glob(PATTERN) for line in path.read_bytes().splitlines()]
        return Counted.of((tuple(map(int, line.split(b"\t"))) for line in lines), self._yields)  # type: ignore[misc]


class _TallyWriter(SinkWriter):
    def __init__(self, log: OutLog, growth: Growth) -> None:
        self._log, self._growth = log, growth

    def write(self, rows: list[Record]) -> None:
        self._log.row(b"%d" % self._growth.take(rows))

    def adopt(self, staged: bytes, schema: Schema) -> None:
        if staged:  # else the slot has counted them
            super().adopt(staged, schema)

    def close(self) -> None:
        self._log.close()


def counted(outputs: Sequence[Output], columns: Sequence[str], workload: Workload[Any]) -> Counted:
    """Count the rows that another engine has logged, with values in the order of these columns."""
    growth, ordered = Growth(workload.group, by_place(columns)), groupby(outputs, key=itemgetter(0))
    results = ((at_us, growth.take([each.values for each in rows])) for at_us, rows in ordered)
    return Counted.of(results, workload.yields)
