"""Latency by operation (DO, figure 12): which of the six operations of the Yahoo pipeline an event's time goes to."""

from __future__ import annotations

from penstock_bench.meter.rows import Check, Claim, OperationRow, Results
from penstock_bench.report import general
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import ADAPTIVE, FORMS, Desk, Study, machine, pick
from penstock_bench.studies.jobs import QUICK_S, WARM_UP_S, beyond_record, observe
from penstock_bench.workloads import WORKLOADS

SECONDS = 6.0
RATES = (20_000.0, 76_000.0)
OFFERED_EPS = 4_000_000.0


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
        workload, quick = WORKLOADS["yahoo"], desk.options.quick
        rates = RATES[:1] if quick else (*RATES, beyond_record(workload, desk, OFFERED_EPS))
        for rate in rates:
            for form in FORMS:
                desk.tell(f"yahoo at {number(rate)}/s, {form}")
                seconds = desk.seconds(SECONDS, QUICK_S)
                warm_up_s = QUICK_S if quick else WARM_UP_S
                desk.add(observe(workload, rate, seconds, desk.options.parallelism, form, warm_up_s=warm_up_s))

    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
        claims = []
        low = pick(results, "yahoo", ADAPTIVE, RATES[0])
        if low is not None and low.operations:
            inside = [each.name for each in low.operations if each.form == "batch"]
            claims.append(
                Claim(
                    source="DO, figure 12(a): 20K events/s",
                    claimed="all operations in record form, latencies like JStorm's; Spark's are higher (6 machines)",
                    measured=f"in batch form: {', '.join(inside) or 'none'}; slowest operation "
                    f"{_slowest(low.operations)}; {machine(results)}",
                    holds=not inside,
                )
            )
        high_eps = max((row.rate or 0.0 for row in results.rows if row.operations), default=0.0)
        high = pick(results, "yahoo", ADAPTIVE, high_eps)
        if high is not None and high_eps > RATES[-1]:
            inside = [each.name for each in high.operations if each.form == "batch"]
            claims.append(
                Claim(
                    source="DO, figure 12(b, c): 40K and 76K events/s",
                    claimed="the first four operations go over to batches, the last two stay: what is left after them "
                    "is little enough for records",
                    measured=f"{number(high_eps)}/s: in batch form {', '.join(inside) or 'none'}; in record form "
                    + ", ".join(each.name for each in high.operations if each.form == "record"),
                    holds=bool(inside) and len(inside) < len(high.operations),
                )
            )
        return claims, []

    def figures(self, results: Results) -> list[Figure]:
        found = general.operations(results.rows, "operations")
        return [found] if found is not None else []


def _slowest(operations: list[OperationRow]) -> str:
    slowest = max(operations, key=lambda each: each.latency_ms)
    return f"{slowest.name}, {ms(slowest.latency_ms)} ms"
