"""Maximum throughput (DO, figure 13): sustained and under overload, in each form, with the spread of repetitions."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_bench.meter.job import sustain
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.meter.runner import Spread
from penstock_bench.report import general
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, Desk, Study, at_least, machine, rows_of
from penstock_bench.studies.peers import carried_from_files
from penstock_bench.workloads import WORKLOADS

REPETITIONS = 3
Cases = dict[str, tuple[str, ...]]
"""Forms by workload."""
CASES: Cases = {"yahoo": FORMS, "scoring": FORMS}
SHORT_CASES: Cases = {"yahoo": FORMS, "wordcount": (RECORD, BATCH), "grep": (RECORD, BATCH), "scoring": FORMS}
QUICK_CASES: Cases = {"yahoo": FORMS}
OVER_RECORD, OVER_BATCH = 2.1, 1.0
SHARE_MIN = 0.95


class Throughput(Study):
    """See the module."""

    name = "throughput"
    title = "Maximum throughput"
    after = "DO, figure 13"
    method = (
        "The Yahoo pipeline and a model called per event (scoring). Each form in turn is offered more than it can "
        "carry, three times, each time another one first; then the highest rate at which no backlog grows is searched "
        "for, from there. With --peer, Structured Streaming reads the same events from files. What comes through is "
        "counted at the sink, for all alike."
    )

    def run(self, desk: Desk) -> None:
        options = desk.options
        for name, forms in desk.choose(CASES, SHORT_CASES, QUICK_CASES).items():
            for repetition in range(desk.choose(REPETITIONS, 1, 1)):
                shift = repetition % len(forms)
                for form in forms[shift:] + forms[:shift]:
                    desk.tell(f"{name} under overload, {form}, run {repetition + 1}")
                    desk.add(desk.carry(name, form))
            for form in () if options.quick else forms:
                desk.tell(f"{name}, {form}: the rate that is sustained")
                carried = _carried(desk.results, name, form)
                desk.add(sustain(WORKLOADS[name], carried.median if carried else 1e5, options.parallelism, form))
        if options.peer:
            for name in ("yahoo", "wordcount", "grep") if options.short else ("yahoo",):
                desk.tell(f"{name}, Structured Streaming, from files")
                carried_from_files(desk, name)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        for name in CASES:
            record, adaptive, batch = (_carried(results, name, form) for form in (RECORD, ADAPTIVE, BATCH))
            if not (record and adaptive and batch):
                continue
            yield Claim(
                f"DO, figure 13: against record engines ({name})",
                "2.1x Flink, 3.0x JStorm, 3.2x Storm on the Yahoo benchmark (6 machines)",
                f"adaptive {number(adaptive.median)}/s, record {number(record.median)}/s: "
                f"{ratio(adaptive.median, record.median)}; {machine(results)}",
                adaptive.median >= OVER_RECORD * record.median,
            )
            yield Claim(
                f"DO, figure 13: against micro-batches ({name})",
                "1.14x Spark Streaming, because only the heavy operations run in batches",
                f"adaptive {ratio(adaptive.median, batch.median)} of batch form ({number(batch.median)}/s)"
                + _beside(results, name),
                adaptive.median >= OVER_BATCH * batch.median,
            )
            told = f"{name}: carried in adaptive form against batch form"
            yield at_least(told, adaptive.median / batch.median, "times", SHARE_MIN)

    def figures(self, results: Results) -> list[Figure]:
        return general.throughput(results.rows, "throughput")


def _carried(results: Results, workload: str, form: str) -> Spread | None:
    return Spread.of(row.capacity_eps for row in rows_of(results, workload, form, having="capacity_eps"))


def _beside(results: Results, workload: str) -> str:
    ours = _carried(results, workload, ADAPTIVE)
    rows = rows_of(results, workload, engine="spark", having="capacity_eps")
    theirs = max((row.capacity_eps or 0.0 for row in rows), default=0.0)
    if not ours or not theirs:
        return ""
    return f"; {ratio(ours.median, theirs)} of Structured Streaming's best ({number(theirs)}/s)"
