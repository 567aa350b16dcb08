"""Where we lose: targets that were missed, and comparisons in which another form or engine was better. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock_bench.meter.rows import ResultRow, Results
from penstock_bench.meter.runner import Spread
from penstock_bench.report.general import at_a_rate
from penstock_bench.report.words import faults, grouped, label, number

MARGIN = 1.1
"""Less than this is not told from noise."""
COMPARED = (("p99_ms", "p99", "ms"), ("cpu_cores", "CPU", "cores"), ("memory_mb", "memory", "MB"))


class Loss(NamedTuple):
    """Something that is worse than it should be, or than it is elsewhere."""

    where: str
    what: str


def losses(results: Results) -> list[Loss]:
    """All of a file, the worst kind first: wrong output, missed targets, claims that do not hold, comparisons."""
    if results.study is not None and results.study.quick:
        return []  # a trial: its figures mean nothing
    where = results.study.name if results.study is not None else "benchmark"
    return [Loss(where, each) for each in (*_wrong(results), *_slower(results.rows))]


def _wrong(results: Results) -> Iterator[str]:
    for row in results.rows:
        if row.faults and row.engine == "penstock":
            where = f"{row.workload}, {label(row)}, {number(row.rate)} events/s"
            yield f"{where}: the output was not exact: {faults(row)}"
    for check in results.checks:
        if not check.met:
            yield f"{check.name}: {number(check.value)} {check.unit}, wanted {check.target}"
    for claim in results.study.claims if results.study is not None else ():
        if claim.holds is False:
            yield f"{claim.source} does not hold here: {claim.measured}"


def _slower(rows: Sequence[ResultRow]) -> Iterator[str]:
    """Compare medians of what is ours and adaptive with every other form and engine at the same work."""
    for (workload, rate), own in grouped(at_a_rate(rows), "workload", "rate").items():
        ours = [row for row in own if row.engine == "penstock" and row.form == "adaptive"]
        for other, theirs in grouped((row for row in own if row not in ours), label).items() if ours else ():
            for field, title, unit in COMPARED:
                mine, best = (Spread.of(getattr(row, field) for row in each) for each in (ours, theirs))
                if mine is not None and best is not None and mine.median > MARGIN * best.median:
                    yield (
                        f"{workload} at {number(rate)} events/s: {title} {number(mine.median)} {unit} in adaptive "
                        f"form, {number(best.median)} {unit} with {other}"
                    )
