"""Where we lose: targets that were missed, and comparisons in which another form or engine was better. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock_bench.meter.rows import ResultRow, Results
from penstock_bench.meter.runner import Spread
from penstock_bench.report.general import at_a_rate
from penstock_bench.report.words import faults, label, number

MARGIN = 1.1
"""Less than this is not told from noise."""


@dataclass(frozen=True)
class Loss:
    """Something that is worse than it should be, or than it is elsewhere."""

    where: str
    what: str


def losses(results: Results) -> list[Loss]:
    """All of a file, the worst kind first: wrong output, missed targets, claims that do not hold, comparisons."""
    if results.study is not None and results.study.quick:
        return []  # a trial: its figures mean nothing
    where = results.study.name if results.study is not None else "benchmark"
    found = [*_inexact(results.rows), *_missed(results), *_claims(results), *_slower(results.rows)]
    return [Loss(where, each) for each in found]


def _inexact(rows: Iterable[ResultRow]) -> Iterator[str]:
    for row in rows:
        if row.faults and row.engine == "penstock":
            where = f"{row.workload}, {label(row)}, {number(row.rate)} events/s"
            yield f"{where}: the output was not exact: {faults(row)}"


def _missed(results: Results) -> Iterator[str]:
    for check in results.checks:
        if not check.met:
            yield f"{check.name}: {number(check.value)} {check.unit}, wanted {check.target}"


def _claims(results: Results) -> Iterator[str]:
    for claim in results.study.claims if results.study is not None else ():
        if claim.holds is False:
            yield f"{claim.source} does not hold here: {claim.measured}"


def _slower(rows: Iterable[ResultRow]) -> Iterator[str]:
    """Compare medians of what is ours and adaptive with every other form and engine at the same work."""
    measured = at_a_rate(list(rows))
    for workload, rate in dict.fromkeys((row.workload, row.rate) for row in measured):
        own = [row for row in measured if (row.workload, row.rate) == (workload, rate)]
        ours = [row for row in own if row.engine == "penstock" and row.form == "adaptive"]
        for other in dict.fromkeys(label(row) for row in own if row not in ours) if ours else ():
            theirs = [row for row in own if label(row) == other]
            for field, title, unit in (
                ("p99_ms", "p99", "ms"),
                ("cpu_cores", "CPU", "cores"),
                ("memory_mb", "memory", "MB"),
            ):
                mine, best = (Spread.of(getattr(row, field) for row in each) for each in (ours, theirs))
                if mine is None or best is None or mine.median <= MARGIN * best.median:
                    continue
                yield (
                    f"{workload} at {number(rate)} events/s: {title} {number(mine.median)} {unit} in adaptive form, "
                    f"{number(best.median)} {unit} with {other}"
                )
