"""Latency by component (DO, tables 1 and 2): where an event's time goes, at a low and at a high rate."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report import general
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, Desk, Study, at_most, machine, pick

SECONDS = 6.0
LOW_EPS, PAPER_HIGH_EPS = 4_000.0, 40_000.0
TOLERANCE = 0.1


def in_words(row: ResultRow) -> str:
    """The components of a row, without those that are nothing."""
    parts = [f"{name} {ms(took_ms)}" for name, took_ms in row.components_ms.items() if took_ms >= 0.001]
    return f"{row.form}: {', '.join(parts) or 'nothing'} ms"


class Components(Study):
    """See the module."""

    name = "components"
    title = "Latency by component"
    after = "DO, tables 1 and 2"
    method = (
        "The Yahoo pipeline at 4,000 and 40,000 events/s, the paper's rates, and at 1.25 times what the record form "
        "carries here, in each form. The components are means over all events of the measured time and add up to the "
        "mean latency."
    )

    def run(self, desk: Desk) -> None:
        high = () if desk.options.quick else (PAPER_HIGH_EPS, desk.beyond_record("yahoo"))
        desk.every_form("yahoo", [LOW_EPS, *high], SECONDS)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        low = [pick(results, "yahoo", form, LOW_EPS) for form in FORMS]
        if all(low):
            record, adaptive, batch = (row for row in low if row is not None)
            waits = adaptive.components_ms.get("wait", 0.0) + adaptive.components_ms.get("schedule", 0.0)
            yield Claim(
                "DO, table 1: 4K events/s",
                "JStorm: process 0.38, network 41 ms. Spark: wait 285, schedule 24, network 22, process 0.07 ms. DO: "
                "process 0.45, network 61 ms, no waiting and no scheduling (6 machines, 1 Gb/s)",
                f"{in_words(record)}. {in_words(adaptive)}. {in_words(batch)}; {machine(results)}",
                waits <= TOLERANCE * sum(adaptive.components_ms.values())
                and batch.components_ms.get("wait", 0.0) > sum(adaptive.components_ms.values()),
            )
        high_eps = max((row.rate or 0.0 for row in results.rows if row.components_ms), default=0.0)
        high = [pick(results, "yahoo", form, high_eps) for form in (RECORD, ADAPTIVE, BATCH)]
        if high_eps > PAPER_HIGH_EPS and all(high):
            record, adaptive, batch = (row for row in high if row is not None)
            yield Claim(
                "DO, table 2: a rate that records cannot carry",
                "40K events/s: JStorm's and Trident's outside wait increases without end; DO: wait 554, schedule 12, "
                "network 220 ms, no outside wait; Spark: wait 713, schedule 39 ms",
                f"{number(high_eps)}/s: {in_words(record)}. {in_words(adaptive)}. {in_words(batch)}",
                record.components_ms.get("out", 0.0) > 2 * adaptive.components_ms.get("out", 0.0),
            )
        for row in results.rows:
            if row.components_ms and row.mean_ms:
                total = sum(row.components_ms.values())
                gap = abs(total - row.mean_ms) / row.mean_ms
                name = f"yahoo at {number(row.rate)}/s, {row.form}: components against the mean latency"
                yield at_most(name, gap, f"apart ({ms(total)} and {ms(row.mean_ms)} ms)", TOLERANCE)

    def figures(self, results: Results) -> list[Figure]:
        return general.components(results.rows, "components")
