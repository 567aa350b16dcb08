"""Latency at fixed rates, whole, by component and by operation (DO, figures 10 and 12, tables 1 and 2; Finch, 5.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock_bench.meter.rows import Claim, OperationRow, ResultRow, Results
from penstock_bench.report import general
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, SECONDS, Desk, Study
from penstock_bench.studies.findings import Findings, at_most
from penstock_bench.studies.peers import latency_beside, outside

Cases = dict[str, dict[float, tuple[str, ...]]]
"""By workload and rate: the forms."""
PEER_RATES = 2
"""Structured Streaming is measured at so many of the lowest rates, in the short set at one."""
SPEEDUP, NEAR = 5.0, 1.1
LOW_EPS, PAPER_HIGH_EPS = 4_000.0, 40_000.0
OPERATIONS_EPS = (20_000.0, 76_000.0)
TOLERANCE = 0.1


class AtRates(Study):
    """A study that is a grid of workloads, rates and forms."""

    cases: ClassVar[Cases]
    """Yahoo has one rate more: one that the record form does not carry."""
    short: ClassVar[Cases | None] = None
    quick: ClassVar[Cases]

    def run(self, desk: Desk) -> None:
        cases = desk.choose(self.cases, self.short or self.cases, self.quick)
        if cases is self.cases:
            cases = {**cases, "yahoo": {**cases["yahoo"], desk.beyond_record("yahoo"): FORMS}}
        desk.grid(cases)


class Rates(AtRates):
    """Each workload at each rate in each form, one job after the other. Yahoo's highest rate is 1.25 times what its
    record form was measured to carry in the same run. Every output is compared with the exact one. With --peer,
    Structured Streaming and the adaptive form are fed and judged from outside, both alike.
    """

    name = "rates"
    title = "Latency at fixed rates"
    after = "DO, figure 10; Finch, figure 5.5"
    # The paper's rates, and more where they are low for the machine.
    cases: ClassVar = {
        "yahoo": dict.fromkeys((LOW_EPS, 20_000, 40_000, 400_000), FORMS),
        "wordcount": dict.fromkeys((5_000, 20_000, 50_000), FORMS),
        "grep": dict.fromkeys((50_000, 80_000, 400_000), FORMS),
    }
    short: ClassVar = {
        "yahoo": {LOW_EPS: FORMS, 20_000: FORMS, 100_000: (RECORD,), 250_000: (RECORD,)},
        "wordcount": {4_000: (RECORD,), 20_000: (ADAPTIVE,)},
        "grep": {4_000: (RECORD,), 100_000: (ADAPTIVE,)},
    }
    quick: ClassVar = {"grep": dict.fromkeys((2_000, 8_000), FORMS)}

    def run(self, desk: Desk) -> None:
        super().run(desk)
        for name, rates in desk.choose(self.cases, self.short, self.quick).items() if desk.options.peer else ():
            for rate in list(rates)[: desk.choose(PEER_RATES, 1, PEER_RATES)]:
                latency_beside(desk, name, rate, SECONDS)

    def findings(self, results: Results) -> Findings:
        low, batch, record = (results.pick("yahoo", form, LOW_EPS) for form in (ADAPTIVE, BATCH, RECORD))
        if low and batch and record and low.p50_ms and batch.p50_ms and low.p99_ms and record.p99_ms:
            theirs = results.pick(outside("yahoo"), BATCH, LOW_EPS, "spark")
            ours = results.pick(outside("yahoo"), ADAPTIVE, LOW_EPS)
            times = ratio(theirs.p50_ms, ours.p50_ms) if theirs and ours else ""
            beside = f"; Structured Streaming's median is {times} ours" if times else ""
            yield Claim(
                "DO, abstract and figure 10: low rate",
                "5x lower latency than micro-batches at a low rate (Yahoo, 20K/s; 6 machines)",
                f"Yahoo at {number(low.rate)}/s: median {ms(low.p50_ms)} ms adaptive, {ms(batch.p50_ms)} ms in batch "
                f"form, {ratio(batch.p50_ms, low.p50_ms)}{beside}; {results.machine}",
                batch.p50_ms >= SPEEDUP * low.p50_ms,
            )
            yield Claim(
                "DO, section 6.2: against record engines",
                "slightly above Storm and JStorm at a low rate, for its source synchronises every 50 ms",
                f"p99 {ms(low.p99_ms)} ms adaptive, {ms(record.p99_ms)} ms in record form",
                low.p99_ms <= NEAR * record.p99_ms,
            )
        high = [row for row in results.rows if row.form == ADAPTIVE and row.p99_ms and row.sustained is not None]
        slow = [row for row in results.rows if row.form == RECORD and row.sustained is False]
        if high and slow:
            kept = [row for row in high if row.sustained]
            yield Claim(
                "DO, figure 10: high rate",
                "record engines' latency grows from 40K/s on (Yahoo); DO keeps a stable latency",
                f"adaptive kept up in {len(kept)} of {len(high)} cases; the record form fell behind at "
                + ", ".join(f"{row.workload} {number(row.rate)}/s (p99 {ms(row.p99_ms)} ms)" for row in slow),
                len(kept) == len(high),
            )
        yield from _word_counts(results)

    def figures(self, results: Results) -> list[Figure]:
        rows = results.rows
        return [*general.latency_over_rate(rows, "rates-latency"), *general.distributions(rows, "rates-distribution")]


def _word_counts(results: Results) -> Iterator[Claim]:
    """Finch's one application: mean latency against the rate of sentences."""
    curves = {}
    for form in (RECORD, ADAPTIVE):
        rows = results.rows_of("wordcount", form, having="mean_ms")
        curves[form] = sorted((row.rate or 0.0, row.mean_ms or 0.0) for row in rows)
    if all(len(curve) > 1 for curve in curves.values()):
        told = "; ".join(
            f"{form} " + ", ".join(f"{number(rate)}/s: {ms(took_ms)} ms" for rate, took_ms in curve)
            for form, curve in curves.items()
        )
        yield Claim(
            "Finch, figure 5.5: word count against the rate of sentences",
            "mean latency grows with the rate of sentences, as messages wait in buffers (Samza and Heron)",
            f"mean latency of {told}; {results.machine}",
            curves[RECORD][-1][1] > curves[RECORD][0][1],
        )


class Components(AtRates):
    """The Yahoo pipeline at 4,000 and 40,000 events/s, the paper's rates, and at 1.25 times what the record form
    carries here, in each form. The components are means over all events of the measured time and add up to the mean
    latency.
    """

    name = "components"
    title = "Latency by component"
    after = "DO, tables 1 and 2"
    cases: ClassVar = {"yahoo": dict.fromkeys((LOW_EPS, PAPER_HIGH_EPS), FORMS)}
    quick: ClassVar = {"yahoo": {LOW_EPS: FORMS}}

    def findings(self, results: Results) -> Findings:
        record, adaptive, batch = (results.pick("yahoo", form, LOW_EPS) for form in FORMS)
        if record and adaptive and batch:
            whole_ms = sum(adaptive.components_ms.values())
            waits_ms = adaptive.components_ms.get("wait", 0.0) + adaptive.components_ms.get("schedule", 0.0)
            yield Claim(
                "DO, table 1: 4K events/s",
                "JStorm: process 0.38, network 41 ms. Spark: wait 285, schedule 24, network 22, process 0.07 ms. DO: "
                "process 0.45, network 61 ms, no waiting and no scheduling (6 machines, 1 Gb/s)",
                f"{_in_words(record)}. {_in_words(adaptive)}. {_in_words(batch)}; {results.machine}",
                waits_ms <= TOLERANCE * whole_ms and batch.components_ms.get("wait", 0.0) > whole_ms,
            )
        high_eps = max((row.rate or 0.0 for row in results.rows if row.components_ms), default=0.0)
        record, adaptive, batch = (results.pick("yahoo", form, high_eps) for form in FORMS)
        if high_eps > PAPER_HIGH_EPS and record and adaptive and batch:
            yield Claim(
                "DO, table 2: a rate that records cannot carry",
                "40K events/s: JStorm's and Trident's outside wait increases without end; DO: wait 554, schedule 12, "
                "network 220 ms, no outside wait; Spark: wait 713, schedule 39 ms",
                f"{number(high_eps)}/s: {_in_words(record)}. {_in_words(adaptive)}. {_in_words(batch)}",
                record.components_ms.get("out", 0.0) > 2 * adaptive.components_ms.get("out", 0.0),
            )
        for row in results.rows:
            if row.components_ms and row.mean_ms:
                total_ms = sum(row.components_ms.values())
                name = f"yahoo at {number(row.rate)}/s, {row.form}: components against the mean latency"
                unit = f"apart ({ms(total_ms)} and {ms(row.mean_ms)} ms)"
                yield at_most(name, abs(total_ms - row.mean_ms) / row.mean_ms, unit, TOLERANCE)

    def figures(self, results: Results) -> list[Figure]:
        return general.components(results.rows, "components")


def _in_words(row: ResultRow) -> str:
    """The components of a row, without those that are nothing."""
    parts = [f"{name} {ms(took_ms)}" for name, took_ms in row.components_ms.items() if took_ms >= 0.001]
    return f"{row.form}: {', '.join(parts) or 'nothing'} ms"


class Operations(AtRates):
    """The Yahoo pipeline at the paper's lowest and highest rate, and at 1.25 times what the record form carries, in
    each form. The latency of an operation is the mean time from the end of the one before to its own end.
    """

    name = "operations"
    title = "Latency by operation"
    after = "DO, figure 12"
    cases: ClassVar = {"yahoo": dict.fromkeys(OPERATIONS_EPS, FORMS)}
    quick: ClassVar = {"yahoo": {OPERATIONS_EPS[0]: FORMS}}

    def findings(self, results: Results) -> Findings:
        low = results.pick("yahoo", ADAPTIVE, OPERATIONS_EPS[0])
        if low is not None and low.operations:
            inside = _names(low.operations, BATCH)
            slowest = max(low.operations, key=lambda each: each.latency_ms)
            yield Claim(
                "DO, figure 12(a): 20K events/s",
                "all operations in record form, latencies like JStorm's; Spark's are higher (6 machines)",
                f"in batch form: {inside}; slowest operation {slowest.name}, {ms(slowest.latency_ms)} ms; "
                f"{results.machine}",
                inside == "none",
            )
        high_eps = max((row.rate or 0.0 for row in results.rows if row.operations), default=0.0)
        high = results.pick("yahoo", ADAPTIVE, high_eps)
        if high is not None and high_eps > OPERATIONS_EPS[-1]:
            inside, behind = _names(high.operations, BATCH), _names(high.operations, RECORD)
            yield Claim(
                "DO, figure 12(b, c): 40K and 76K events/s",
                "the first four operations go over to batches, the last two stay: what is left after them is little "
                "enough for records",
                f"{number(high_eps)}/s: in batch form {inside}; in record form {behind}",
                "none" not in (inside, behind),
            )

    def figures(self, results: Results) -> list[Figure]:
        return general.operations(results.rows, "operations")


def _names(operations: list[OperationRow], form: str) -> str:
    return ", ".join(each.name for each in operations if each.form == form) or "none"
