"""The demonstration: a model called per event through a burst, and the proof that its output is exact.

`penstock demo` runs it once with forms that change by themselves and once in each form, on the same input.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors import files, generator
from penstock.connectors.base import Run
from penstock.connectors.generator import Generator
from penstock.demo.scoring import FEATURE_NAMES, FIELDS, exact_scores, score
from penstock.demo.series import BurstFigures, Course, Sampler, Scene
from penstock.durations import parse_us
from penstock.pipeline.options import Forms
from penstock.pipeline.plan import Plan
from penstock.pipeline.streams.stream import stream
from penstock.runtime.job import plan_of
from penstock.runtime.report import Report

SOURCE = "events"
SEED = 7
BASE_EPS = 8_000.0
PEAK_EPS = 500_000.0
SECONDS = 12.0
QUICK_SECONDS = 9.0
PATIENCE_S = 10.0
"""A run that has not worked its backlog off so long after its input's end stops reading: it is plain by then."""
REPLAY_RECORDS = 65_536
TOLERANCE = 1e-12
"""The libraries' exponentials differ in the last bits."""

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]


class Verified(msgspec.Struct):
    """The output compared with scores of the same input made without Penstock."""

    exact: bool
    events: int
    """Events that were read, each of which belongs into the result."""
    lost: int
    duplicated: int
    wrong: int
    reordered: int

    @property
    def sentence(self) -> str:
        """The finding in words."""
        if self.exact:
            return f"exact: {self.events:,} events, each scored once, in order"
        return (
            f"NOT EXACT: of {self.events:,} events {self.lost:,} are lost and {self.duplicated:,} scored twice; "
            f"{self.wrong:,} scores are wrong and {self.reordered:,} out of order"
        )


@dataclass(frozen=True)
class Demo:
    """One demonstration: the same input for every run, results in a directory of their own."""

    scene: Scene
    directory: Path

    @property
    def source(self) -> Generator:
        """The input: equal in all runs."""
        # A record that is due at the very end belongs to the time after it.
        total = self.scene.schedule.due(parse_us(self.scene.seconds, option="seconds") - 1)
        return generator(FIELDS, rate=self.scene.schedule, seed=SEED, total=total, format="columns")

    def plan(self, forms: Forms, **options: Any) -> Plan:
        """Check and lay out a run; ``options`` are those of `ps.start`."""
        pipeline = stream(SOURCE, self.source).map(score).to(files(self._out(forms), format="parquet"))
        return plan_of(pipeline, name="demo", forms=forms.value, **options)

    def verify(self, forms: Forms, report: Report) -> Verified:
        """Compare a run's output with what it has read."""
        read = report.offsets[SOURCE]
        numbers, scores = _output(self._out(forms))
        found = compare(self._exact(read), len(read), numbers, scores)
        lost, duplicated = max(report.lost, found.lost), max(report.duplicated, found.duplicated)
        reordered = max(report.reordered, found.reordered)
        return Verified(
            exact=not (lost or duplicated or reordered or found.wrong),
            events=found.events,
            lost=lost,
            duplicated=duplicated,
            wrong=found.wrong,
            reordered=reordered,
        )

    def course(self, forms: Forms, sampler: Sampler[Scene], report: Report, verified: Verified) -> Course:
        """Put together what one run came to."""
        figures: BurstFigures = msgspec.structs.replace(
            sampler.figures(forms.value, report),
            lost=verified.lost,
            duplicated=verified.duplicated,
            reordered=verified.reordered,
            wrong=verified.wrong,
        )
        return Course(figures, sampler.samples, report.switches)

    def _out(self, forms: Forms) -> Path:
        return self.directory / forms.value

    def _exact(self, read: list[int]) -> Scores:
        """Exact scores by the number of the event; NaN for those that were not read."""
        end = max(((count - 1) * len(read) + i + 1 for i, count in enumerate(read) if count), default=0)
        reader = self.source.reader(0, 1, 0)
        scores = np.full(end, np.nan)
        for first in range(0, end, REPLAY_RECORDS):
            columns = reader.read(Run(first, min(REPLAY_RECORDS, end - first))).columns
            features = np.column_stack([columns.column(name).to_numpy() for name in FEATURE_NAMES])
            scores[first : first + len(features)] = exact_scores(features)
        numbers = np.arange(end)
        scores[numbers // len(read) >= np.array(read)[numbers % len(read)]] = np.nan
        return scores


def compare(exact: Scores, partitions: int, numbers: Numbers, scores: Scores) -> Verified:
    """Compare scores, in the order in which they were written, with the exact ones of the events that were read.

    Parameters
    ----------
    exact : array
        By the number of the event; NaN where it was not read.
    partitions : int
        Event ``n`` belongs to partition ``n % partitions``, within which order is kept.
    numbers, scores : array
        The output.
    """
    known = (numbers >= 0) & (numbers < len(exact))
    wanted = np.full(len(numbers), np.nan)
    wanted[known] = exact[numbers[known]]
    right = np.abs(scores - wanted) <= TOLERANCE * np.abs(wanted)  # NaN: never
    seen = numbers[right]
    events = int(np.count_nonzero(~np.isnan(exact)))
    different = len(np.unique(seen))
    reordered = 0
    for partition in range(partitions):
        own = seen[seen % partitions == partition]
        reordered += int(np.count_nonzero(own < np.maximum.accumulate(own))) if len(own) else 0
    lost, duplicated, wrong = events - different, len(seen) - different, int(np.count_nonzero(~right))
    return Verified(not (lost or duplicated or wrong or reordered), events, lost, duplicated, wrong, reordered)


def _output(directory: Path) -> tuple[Numbers, Scores]:
    """The rows of the files that were committed, in the order of epochs."""
    tables = [pq.read_table(path) for path in sorted(directory.glob("part-*"))]
    if not tables:
        return np.empty(0, np.int64), np.empty(0)
    table = pa.concat_tables(tables)
    return table.column("number").to_numpy(), table.column("score").to_numpy()
