"""Latency at fixed rates (DO, figure 10; Finch, figure 5.5): workloads and forms; Structured Streaming if asked."""

from __future__ import annotations

from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.report import general
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, Desk, Study, machine, pick
from penstock_bench.studies.jobs import QUICK_S, WARM_UP_S, beyond_record, observe
from penstock_bench.studies.peers import measure_peer
from penstock_bench.workloads import WORKLOADS

SECONDS = 6.0
RATES: dict[str, tuple[float, ...]] = {
    "yahoo": (4_000, 20_000, 40_000, 400_000),
    "wordcount": (5_000, 20_000, 50_000),
    "grep": (50_000, 80_000, 400_000),
}
"""The paper's rates, and more where they are low for the machine; Yahoo also gets one that records cannot carry."""
QUICK_RATES: dict[str, tuple[float, ...]] = {"grep": (2_000, 8_000)}
OFFERED_EPS = 4_000_000.0
SPEEDUP = 5.0
NEAR = 1.1


class Rates(Study):
    """See the module."""

    name = "rates"
    title = "Latency at fixed rates"
    after = "DO, figure 10; Finch, figure 5.5"
    method = (
        "Each workload at each rate in each form, one job after the other. Yahoo's highest rate is 1.25 times what its "
        "record form was measured to carry in the same run. Every output is compared with the exact one."
    )

    def run(self, desk: Desk) -> None:
        seconds = desk.seconds(SECONDS, QUICK_S)
        warm_up_s = QUICK_S if desk.options.quick else WARM_UP_S
        for name, rates in (QUICK_RATES if desk.options.quick else RATES).items():
            workload = WORKLOADS[name]
            high = () if desk.options.quick or name != "yahoo" else (beyond_record(workload, desk, OFFERED_EPS),)
            for rate in (*rates, *high):
                for form in FORMS:
                    desk.tell(f"{name} at {number(rate)}/s, {form}")
                    desk.add(observe(workload, rate, seconds, desk.options.parallelism, form, warm_up_s=warm_up_s))
                if desk.options.peer and rate <= rates[min(1, len(rates) - 1)]:
                    desk.tell(f"{name} at {number(rate)}/s, Structured Streaming")
                    measure_peer(desk, name, rate, seconds)

    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
        claims = []
        where = machine(results)
        low = pick(results, "yahoo", ADAPTIVE, RATES["yahoo"][0])
        batch = pick(results, "yahoo", BATCH, RATES["yahoo"][0])
        record = pick(results, "yahoo", RECORD, RATES["yahoo"][0])
        if low and batch and record and low.p50_ms and batch.p50_ms and low.p99_ms and record.p99_ms:
            peer = next((r for r in results.rows if r.engine == "spark" and r.rate == low.rate), None)
            beside = f"; Structured Streaming's median is {ratio(peer.p50_ms, low.p50_ms)} ours" if peer else ""
            claims.append(
                Claim(
                    source="DO, abstract and figure 10: low rate",
                    claimed="5x lower latency than micro-batches at a low rate (Yahoo, 20K/s; 6 machines)",
                    measured=f"Yahoo at {number(low.rate)}/s: median {ms(low.p50_ms)} ms adaptive, "
                    f"{ms(batch.p50_ms)} ms in batch form, {ratio(batch.p50_ms, low.p50_ms)}{beside}; {where}",
                    holds=batch.p50_ms >= SPEEDUP * low.p50_ms,
                )
            )
            claims.append(
                Claim(
                    source="DO, section 6.2: against record engines",
                    claimed="slightly above Storm and JStorm at a low rate, for its source synchronises every 50 ms",
                    measured=f"p99 {ms(low.p99_ms)} ms adaptive, {ms(record.p99_ms)} ms in record form",
                    holds=low.p99_ms <= NEAR * record.p99_ms,
                )
            )
        high = [row for row in results.rows if row.form == ADAPTIVE and row.p99_ms and row.sustained is not None]
        slow = [row for row in results.rows if row.form == RECORD and row.sustained is False]
        if high and slow:
            kept = [row for row in high if row.sustained]
            claims.append(
                Claim(
                    source="DO, figure 10: high rate",
                    claimed="record engines' latency grows from 40K/s on (Yahoo); DO keeps a stable latency",
                    measured=f"adaptive kept up in {len(kept)} of {len(high)} cases; the record form fell behind at "
                    + ", ".join(f"{row.workload} {number(row.rate)}/s (p99 {ms(row.p99_ms)} ms)" for row in slow),
                    holds=len(kept) == len(high),
                )
            )
        return [*claims, *_word_counts(results)], []

    def figures(self, results: Results) -> list[Figure]:
        found = [
            general.latency_over_rate(results.rows, "rates-latency"),
            *general.distributions(results.rows, "rates-distribution"),
        ]
        return [each for each in found if each is not None]


def _word_counts(results: Results) -> list[Claim]:
    """Finch's one application: mean latency against the rate of sentences."""
    rows = [row for row in results.rows if row.workload == "wordcount" and row.engine == "penstock" and row.mean_ms]
    curves = {
        form: sorted((row.rate or 0.0, row.mean_ms or 0.0) for row in rows if row.form == form)
        for form in (RECORD, ADAPTIVE)
    }
    if any(len(curve) < 2 for curve in curves.values()):
        return []
    told = "; ".join(
        f"{form} " + ", ".join(f"{number(rate)}/s: {ms(took_ms)} ms" for rate, took_ms in curve)
        for form, curve in curves.items()
    )
    first, last = curves[RECORD][0][1], curves[RECORD][-1][1]
    return [
        Claim(
            source="Finch, figure 5.5: word count against the rate of sentences",
            claimed="mean latency grows with the rate of sentences, as messages wait in buffers (Samza and Heron)",
            measured=f"mean latency of {told}; {machine(results)}",
            holds=last > first,
        )
    ]
