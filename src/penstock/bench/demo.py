"""The demonstration: the Yahoo pipeline into memory, and the proof that its output is exact; for `penstock demo`."""

from __future__ import annotations

import msgspec

from penstock.bench.workloads import replay
from penstock.bench.workloads.yahoo import YAHOO
from penstock.connectors import memory
from penstock.pipeline.plan import Plan
from penstock.pipeline.stream import stream
from penstock.runtime.job import plan_of
from penstock.runtime.report import Report

SOURCE = "ad-events"


class Verified(msgspec.Struct):
    """The output compared with a count of the same input made without Penstock."""

    exact: bool
    views: int
    """Events that belong into the result."""
    windows: int
    lost: int
    duplicated: int
    wrong: int
    reordered: int

    @property
    def sentence(self) -> str:
        """The finding in words."""
        if self.exact:
            return f"exact: {self.views:,} views in {self.windows:,} windows, each counted once"
        return (
            f"NOT EXACT: of {self.views:,} views {self.lost:,} are lost and {self.duplicated:,} counted twice; "
            f"{self.wrong:,} rows are wrong and {self.reordered:,} out of order"
        )


class Demo:
    """One demonstration."""

    def __init__(self, rate_eps: float) -> None:
        self._source = YAHOO.source(rate_eps)
        self.sink = memory()

    def plan(self, parallelism: int | None) -> Plan:
        """Check and lay out the pipeline."""
        pipeline = YAHOO.build(stream(SOURCE, self._source)).to(self.sink)
        return plan_of(pipeline, name="demo", parallelism=parallelism)

    def verify(self, report: Report) -> tuple[Report, Verified]:
        """Compare the output with what was read; return the report with the differences in it, and the finding."""
        read = report.offsets[SOURCE]
        expected = YAHOO.expected(replay(self._source, report.start_us, read)) if any(read) else {}
        found = YAHOO.compare(expected, self.sink.dicts(), len(read))
        # What comes later than the window's lateness allows is left out on purpose, and counted as late.
        lost = abs(found.lost - report.late)
        told = msgspec.structs.replace(
            report,
            lost=max(report.lost, lost),
            duplicated=max(report.duplicated, found.duplicated),
            reordered=max(report.reordered, found.reordered),
        )
        verified = Verified(
            exact=not (told.lost or told.duplicated or told.reordered or found.wrong),
            views=sum(expected.values()),
            windows=len(expected),
            lost=told.lost,
            duplicated=told.duplicated,
            wrong=found.wrong,
            reordered=told.reordered,
        )
        return told, verified
