"""Maximum throughput (DO, figure 13): sustained and under overload, in each form, with the spread of repetitions."""

from __future__ import annotations

from penstock_bench.meter.measure import measure_sustained
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.meter.runner import Spread
from penstock_bench.report import general
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, Desk, Study, machine
from penstock_bench.studies.jobs import QUICK_S, SETTLE_S, carry
from penstock_bench.studies.peers import sustained_peer
from penstock_bench.workloads import WORKLOADS

SECONDS = 5.0
REPETITIONS = 3
OFFERED_EPS = {"yahoo": 4_000_000.0, "scoring": 12_000_000.0}
"""More than any form carries."""
OVER_RECORD, OVER_BATCH = 2.1, 1.0


class Throughput(Study):
    """See the module."""

    name = "throughput"
    title = "Maximum throughput"
    after = "DO, figure 13"
    method = (
        "The Yahoo pipeline and a model called per event (scoring). Each form in turn is offered more than it can "
        "carry, three times, each time another one first; then the rate is raised in steps, around that, until the "
        "backlog grows. With --peer, Structured Streaming reads the same events from files."
    )

    def run(self, desk: Desk) -> None:
        quick, options = desk.options.quick, desk.options
        for name, offered_eps in list(OFFERED_EPS.items())[: 1 if quick else None]:
            workload = WORKLOADS[name]
            for repetition in range(1 if quick else REPETITIONS):
                for form in FORMS[repetition % 3 :] + FORMS[: repetition % 3]:
                    desk.tell(f"{name} under overload, {form}, run {repetition + 1}")
                    seconds, settle_s = desk.seconds(SECONDS, QUICK_S), QUICK_S if quick else SETTLE_S
                    desk.add(carry(workload, offered_eps, seconds, options.parallelism, form, settle_s=settle_s))
            for form in () if quick else FORMS:
                carried = _carried(desk.results, name, form)
                desk.tell(f"{name}, {form}: the rate that is sustained")
                carried_eps = carried.median if carried else offered_eps / 10
                desk.add(measure_sustained(workload, carried_eps, options.parallelism, form))
        if options.peer:
            desk.tell("yahoo, Structured Streaming, from files")
            sustained_peer(desk)

    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
        claims, checks = [], []
        where = machine(results)
        for name in OFFERED_EPS:
            record, adaptive, batch = (_carried(results, name, form) for form in (RECORD, ADAPTIVE, BATCH))
            if not (record and adaptive and batch):
                continue
            claims.append(
                Claim(
                    source=f"DO, figure 13: against record engines ({name})",
                    claimed="2.1x Flink, 3.0x JStorm, 3.2x Storm on the Yahoo benchmark (6 machines)",
                    measured=f"adaptive {number(adaptive.median)}/s, record {number(record.median)}/s: "
                    f"{ratio(adaptive.median, record.median)}; {where}",
                    holds=adaptive.median >= OVER_RECORD * record.median,
                )
            )
            claims.append(
                Claim(
                    source=f"DO, figure 13: against micro-batches ({name})",
                    claimed="1.14x Spark Streaming, because only the heavy operations run in batches",
                    measured=f"adaptive {ratio(adaptive.median, batch.median)} of batch form "
                    f"({number(batch.median)}/s)" + _beside(results, name),
                    holds=adaptive.median >= OVER_BATCH * batch.median,
                )
            )
            share = adaptive.median / batch.median
            checks.append(
                Check(
                    name=f"{name}: carried in adaptive form against batch form",
                    value=round(share, 3),
                    unit="times",
                    target="at least 0.95",
                    met=share >= 0.95,
                )
            )
        return claims, checks

    def figures(self, results: Results) -> list[Figure]:
        found = general.throughput(results.rows, "throughput")
        return [found] if found is not None else []


def _carried(results: Results, workload: str, form: str) -> Spread | None:
    return Spread.of(
        row.capacity_eps for row in results.rows if (row.workload, row.form) == (workload, form) and row.capacity_eps
    )


def _beside(results: Results, workload: str) -> str:
    theirs = [row.sustained_eps or 0.0 for row in results.rows if row.engine == "spark" and row.workload == workload]
    ours = [
        row.sustained_eps or 0.0
        for row in results.rows
        if row.engine == "penstock" and row.form == ADAPTIVE and row.workload == workload
    ]
    if not theirs or not ours:
        return ""
    return f"; sustained {ratio(max(ours), max(theirs))} of Structured Streaming's best ({number(max(theirs))}/s)"
