"""Latency at fixed rates (DO, figure 10; Finch, figure 5.5): workloads and forms; Structured Streaming if asked."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.report import general
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, Desk, Study, machine, pick, rows_of
from penstock_bench.studies.peers import latency_beside, outside

SECONDS = 6.0
Cases = dict[str, dict[float, tuple[str, ...]]]
"""By workload and rate: the forms."""
CASES: Cases = {
    "yahoo": dict.fromkeys((4_000, 20_000, 40_000, 400_000), FORMS),
    "wordcount": dict.fromkeys((5_000, 20_000, 50_000), FORMS),
    "grep": dict.fromkeys((50_000, 80_000, 400_000), FORMS),
}
"""The paper's rates, and more where they are low for the machine; Yahoo also gets one that records cannot carry."""
SHORT_CASES: Cases = {
    "yahoo": {4_000: FORMS, 20_000: FORMS, 100_000: (RECORD,), 250_000: (RECORD,)},
    "wordcount": {4_000: (RECORD,), 20_000: (ADAPTIVE,)},
    "grep": {4_000: (RECORD,), 100_000: (ADAPTIVE,)},
}
QUICK_CASES: Cases = {"grep": dict.fromkeys((2_000, 8_000), FORMS)}
PEER_RATES = 2
"""Structured Streaming is measured at so many of the lowest rates, in the short set at one."""
SPEEDUP = 5.0
NEAR = 1.1


class Rates(Study):
    """See the module."""

    name = "rates"
    title = "Latency at fixed rates"
    after = "DO, figure 10; Finch, figure 5.5"
    method = (
        "Each workload at each rate in each form, one job after the other. Yahoo's highest rate is 1.25 times what its "
        "record form was measured to carry in the same run. Every output is compared with the exact one. With --peer, "
        "Structured Streaming and the adaptive form are fed and judged from outside, both alike."
    )

    def run(self, desk: Desk) -> None:
        for name, cases in desk.choose(CASES, SHORT_CASES, QUICK_CASES).items():
            if cases is CASES["yahoo"]:
                cases = {**cases, desk.beyond_record(name): FORMS}
            for rate, forms in cases.items():
                for form in forms:
                    desk.tell(f"{name} at {number(rate)}/s, {form}")
                    desk.add(desk.observe(name, rate, form, SECONDS))
            for rate in list(cases)[: 1 if desk.options.short else PEER_RATES] if desk.options.peer else ():
                latency_beside(desk, name, rate, SECONDS)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        low_eps, where = min(CASES["yahoo"]), machine(results)
        low, batch, record = (pick(results, "yahoo", form, low_eps) for form in (ADAPTIVE, BATCH, RECORD))
        if low and batch and record and low.p50_ms and batch.p50_ms and low.p99_ms and record.p99_ms:
            theirs = pick(results, outside("yahoo"), BATCH, low_eps, "spark")
            ours = pick(results, outside("yahoo"), ADAPTIVE, low_eps)
            beside = (
                f"; Structured Streaming's median is {ratio(theirs.p50_ms, ours.p50_ms)} ours"
                if theirs and ours
                else ""
            )
            yield Claim(
                "DO, abstract and figure 10: low rate",
                "5x lower latency than micro-batches at a low rate (Yahoo, 20K/s; 6 machines)",
                f"Yahoo at {number(low.rate)}/s: median {ms(low.p50_ms)} ms adaptive, {ms(batch.p50_ms)} ms in batch "
                f"form, {ratio(batch.p50_ms, low.p50_ms)}{beside}; {where}",
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
        return [
            *general.latency_over_rate(rows, "rates-latency"),
            *general.distributions(rows, "rates-distribution"),
        ]


def _word_counts(results: Results) -> Iterator[Claim]:
    """Finch's one application: mean latency against the rate of sentences."""
    curves = {
        form: sorted(
            (row.rate or 0.0, row.mean_ms or 0.0) for row in rows_of(results, "wordcount", form, having="mean_ms")
        )
        for form in (RECORD, ADAPTIVE)
    }
    if all(len(curve) > 1 for curve in curves.values()):
        told = "; ".join(
            f"{form} " + ", ".join(f"{number(rate)}/s: {ms(took_ms)} ms" for rate, took_ms in curve)
            for form, curve in curves.items()
        )
        yield Claim(
            "Finch, figure 5.5: word count against the rate of sentences",
            "mean latency grows with the rate of sentences, as messages wait in buffers (Samza and Heron)",
            f"mean latency of {told}; {machine(results)}",
            curves[RECORD][-1][1] > curves[RECORD][0][1],
        )
