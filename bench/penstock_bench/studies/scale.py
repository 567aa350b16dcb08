"""Workers against throughput and latency (Finch, figure 5.4): more processes on the same machine."""

from __future__ import annotations

from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Figure, Line, Lines, Mark
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, RECORD, Desk, Study, machine
from penstock_bench.studies.jobs import QUICK_S, SETTLE_S, WARM_UP_S, carry, observe
from penstock_bench.workloads import WORKLOADS

WORKERS = (1, 2, 3, 4)
QUICK_WORKERS = (1,)
SECONDS = 5.0
OFFERED_EPS = 4_000_000.0
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
        workload, quick = WORKLOADS[WORKLOAD], desk.options.quick
        seconds = desk.seconds(SECONDS, QUICK_S)
        for workers in QUICK_WORKERS if quick else WORKERS:
            for form in (RECORD,) if quick else (RECORD, BATCH):
                desk.tell(f"{workers} workers under overload, {form}")
                settle_s = QUICK_S if quick else SETTLE_S
                desk.add(_named(carry(workload, OFFERED_EPS, seconds, workers, form, settle_s=settle_s), workers))
            desk.tell(f"{workers} workers at {number(RATE_EPS)}/s, {ADAPTIVE}")
            warm_up_s = QUICK_S if quick else WARM_UP_S
            desk.add(_named(observe(workload, RATE_EPS, seconds, workers, ADAPTIVE, warm_up_s=warm_up_s), workers))

    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
        by_form = {form: _curve(results, form, "capacity_eps") for form in (RECORD, BATCH)}
        claims = []
        for form, curve in by_form.items():
            if len(curve) < 2:
                continue
            first, cores = curve[0], results.header.cores
            best = max(curve, key=lambda point: point[1])
            told = ", ".join(f"{workers}: {number(eps)}/s" for workers, eps in curve)
            claims.append(
                Claim(
                    source=f"Finch, figure 5.4: throughput, {form} form",
                    claimed="throughput grows with the containers until the network is full (Samza, Heron; a cluster)",
                    measured=f"{told}; best with {best[0]}, {ratio(best[1], first[1])} of one; {machine(results)}, so "
                    f"more than {cores} workers cannot help",
                    holds=best[0] > first[0],
                )
            )
        latency = _curve(results, ADAPTIVE, "p99_ms")
        if len(latency) > 1:
            told = ", ".join(f"{workers}: {ms(took_ms)} ms" for workers, took_ms in latency)
            claims.append(
                Claim(
                    source="Finch, figure 5.4: latency",
                    claimed="latency grows with the containers, faster when the network is full",
                    measured=f"p99 at {number(RATE_EPS)}/s: {told}",
                    holds=None,
                )
            )
        return claims, []

    def figures(self, results: Results) -> list[Figure]:
        lines = []
        for form in (RECORD, BATCH):
            curve = _curve(results, form, "capacity_eps")
            if curve:
                lines.append(Line(form, form, [x for x, _ in curve], [y for _, y in curve]))
        latencies = []
        for field in ("p50_ms", "p99_ms"):
            curve = _curve(results, ADAPTIVE, field)
            if curve:
                name = f"adaptive, {field.removesuffix('_ms')}"
                dashed = field == "p50_ms"
                latencies.append(Line(name, ADAPTIVE, [x for x, _ in curve], [y for _, y in curve], dashed=dashed))
        if not lines and not latencies:
            return []
        ticks = sorted({int(str(row.settings.get("workers", 1))) for row in results.rows})
        marks = [Mark(float(results.header.cores), "cores")]
        panels = [
            Lines("Carried under overload", "workers", "events/s", lines, marks=marks, x_ticks=ticks),
            Lines(f"Latency at {number(RATE_EPS)} events/s", "workers", "ms", latencies, marks=marks, x_ticks=ticks),
        ]
        return [
            Figure("scale", "Workers against throughput and latency", "Yahoo pipeline, one machine.", panels, columns=2)
        ]


def _named(row: ResultRow, workers: int) -> ResultRow:
    row.settings = {**row.settings, "workers": workers}
    row.variant = f"{workers} workers"
    return row


def _curve(results: Results, form: str, field: str) -> list[tuple[int, float]]:
    found = [
        (int(str(row.settings["workers"])), float(getattr(row, field)))
        for row in results.rows
        if row.form == form and "workers" in row.settings and getattr(row, field) is not None
    ]
    return sorted(found)
