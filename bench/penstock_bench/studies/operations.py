"""Latency by operation (DO, figure 12): which of the six operations of the Yahoo pipeline an event's time goes to."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_bench.meter.rows import Check, Claim, OperationRow, Results
from penstock_bench.report import general
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import ADAPTIVE, BATCH, RECORD, Desk, Study, machine, pick

SECONDS = 6.0
RATES = (20_000.0, 76_000.0)


class Operations(Study):
    """See the module."""

    name = "operations"
    title = "Latency by operation"
    after = "DO, figure 12"
    method = (
        "The Yahoo pipeline at the paper's lowest and highest rate, and at 1.25 times what the record form carries, "
        "in each form. The latency of an operation is the mean time from the end of the one before to its own end."
    )

    def run(self, desk: Desk) -> None:
        rates = RATES[:1] if desk.options.quick else (*RATES, desk.beyond_record("yahoo"))
        desk.every_form("yahoo", rates, SECONDS)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        low = pick(results, "yahoo", ADAPTIVE, RATES[0])
        if low is not None and low.operations:
            inside = _names(low.operations, BATCH)
            yield Claim(
                "DO, figure 12(a): 20K events/s",
                "all operations in record form, latencies like JStorm's; Spark's are higher (6 machines)",
                f"in batch form: {inside}; slowest operation {_slowest(low.operations)}; {machine(results)}",
                inside == "none",
            )
        high_eps = max((row.rate or 0.0 for row in results.rows if row.operations), default=0.0)
        high = pick(results, "yahoo", ADAPTIVE, high_eps)
        if high is not None and high_eps > RATES[-1]:
            inside, outside = _names(high.operations, BATCH), _names(high.operations, RECORD)
            yield Claim(
                "DO, figure 12(b, c): 40K and 76K events/s",
                "the first four operations go over to batches, the last two stay: what is left after them is little "
                "enough for records",
                f"{number(high_eps)}/s: in batch form {inside}; in record form {outside}",
                "none" not in (inside, outside),
            )

    def figures(self, results: Results) -> list[Figure]:
        return general.operations(results.rows, "operations")


def _names(operations: list[OperationRow], form: str) -> str:
    return ", ".join(each.name for each in operations if each.form == form) or "none"


def _slowest(operations: list[OperationRow]) -> str:
    slowest = max(operations, key=lambda each: each.latency_ms)
    return f"{slowest.name}, {ms(slowest.latency_ms)} ms"
