"""Workers against throughput and latency (Finch, figure 5.4): more processes on the same machine."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Figure, Line, Lines, Mark, figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, RECORD, Desk, Study, curve, machine, rows_of

WORKERS = (1, 2, 3, 4)
SECONDS = 5.0
RATE_EPS = 20_000.0
WORKLOAD = "yahoo"


class Scale(Study):
    """See the module."""

    name = "scale"
    title = "Workers against throughput and latency"
    after = "Finch, figure 5.4"
    method = (
        "The Yahoo pipeline with 1 to 4 workers (and as many slots) on one machine: what gets through under overload "
        "in record and in batch form, and the latency of the adaptive form at 20,000 events/s."
    )

    def run(self, desk: Desk) -> None:
        quick = desk.options.quick
        for workers in WORKERS[:1] if quick else WORKERS:
            for form in (RECORD,) if quick else (RECORD, BATCH):
                desk.tell(f"{workers} workers under overload, {form}")
                desk.add(_named(desk.carry(WORKLOAD, form, SECONDS, workers=workers), workers))
            desk.tell(f"{workers} workers at {number(RATE_EPS)}/s, {ADAPTIVE}")
            desk.add(_named(desk.observe(WORKLOAD, RATE_EPS, ADAPTIVE, SECONDS, workers=workers), workers))

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        for form in (RECORD, BATCH):
            carried = _curve(results, form, "capacity_eps")
            if len(carried) > 1:
                best = max(carried, key=lambda point: point[1])
                told = ", ".join(f"{workers}: {number(eps)}/s" for workers, eps in carried)
                yield Claim(
                    f"Finch, figure 5.4: throughput, {form} form",
                    "throughput grows with the containers until the network is full (Samza, Heron; a cluster)",
                    f"{told}; best with {best[0]}, {ratio(best[1], carried[0][1])} of one; {machine(results)}, so more "
                    f"than {results.header.cores} workers cannot help",
                    best[0] > carried[0][0],
                )
        latency = _curve(results, ADAPTIVE, "p99_ms")
        if len(latency) > 1:
            told = ", ".join(f"{workers}: {ms(took_ms)} ms" for workers, took_ms in latency)
            claimed = "latency grows with the containers, faster when the network is full"
            yield Claim("Finch, figure 5.4: latency", claimed, f"p99 at {number(RATE_EPS)}/s: {told}", None)

    def figures(self, results: Results) -> list[Figure]:
        carried = [Line.of(form, form, _curve(results, form, "capacity_eps")) for form in (RECORD, BATCH)]
        latency = [
            Line.of("adaptive, p50", ADAPTIVE, _curve(results, ADAPTIVE, "p50_ms"), dashed=True),
            Line.of("adaptive, p99", ADAPTIVE, _curve(results, ADAPTIVE, "p99_ms")),
        ]
        ticks = sorted({int(str(row.settings.get("workers", 1))) for row in results.rows})
        marks = [Mark(float(results.header.cores), "cores")]
        panels = [
            Lines("Carried under overload", "workers", "events/s", carried, marks=marks, x_ticks=ticks),
            Lines(f"Latency at {number(RATE_EPS)} events/s", "workers", "ms", latency, marks=marks, x_ticks=ticks),
        ]
        return figure("scale", self.title, "Yahoo pipeline, one machine.", panels, columns=2)


def _named(row: ResultRow, workers: int) -> ResultRow:
    row.settings = {**row.settings, "workers": workers}
    row.variant = f"{workers} workers"
    return row


def _curve(results: Results, form: str, field: str) -> list[tuple[int, float]]:
    rows = [row for row in rows_of(results, form=form, having=field) if "workers" in row.settings]
    return curve(rows, "workers", field)
