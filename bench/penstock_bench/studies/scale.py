"""Workers against throughput and latency (Finch, figure 5.4): more processes on the same machine."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Figure, Line, Lines, Mark
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, RECORD, Desk, Study, machine

WORKERS = (1, 2, 3, 4)
MANY = 8
SECONDS = 5.0
RATE_EPS = 20_000.0
WORKLOAD = "yahoo"
SHUFFLES, SHUFFLES_EPS = "shuffles", 5_000.0
MANY_MS_MAX, SHUFFLES_MS_MAX, CORES_RATIO_MAX = 6.0, 10.0, 1.5
"""What latency (p99), and what processor time of two workers against that of one, is aimed at."""


class Scale(Study):
    """See the module."""

    name = "scale"
    title = "Workers against throughput and latency"
    after = "Finch, figure 5.4"
    method = (
        "The Yahoo pipeline with 1 to 4 workers (and as many slots) on one machine: what gets through under overload "
        "in record and in batch form, and the latency of the adaptive form at 20,000 events/s, with 8 workers too; "
        "the latency of six shuffles in a row at 5,000 events/s."
    )

    def run(self, desk: Desk) -> None:
        quick = desk.options.quick
        for workers in WORKERS[:1] if quick else WORKERS:
            for form in (RECORD,) if quick else (RECORD, BATCH):
                desk.tell(f"{workers} workers under overload, {form}")
                desk.add(_named(desk.carry(WORKLOAD, form, SECONDS, workers=workers), workers))
            desk.tell(f"{workers} workers at {number(RATE_EPS)}/s, {ADAPTIVE}")
            desk.add(_named(desk.observe(WORKLOAD, RATE_EPS, ADAPTIVE, SECONDS, workers=workers), workers))
        for name, rate, workers in () if quick else ((WORKLOAD, RATE_EPS, MANY), (SHUFFLES, SHUFFLES_EPS, 2)):
            desk.tell(f"{name} with {workers} workers at {number(rate)}/s, {ADAPTIVE}")
            desk.add(_named(desk.observe(name, rate, ADAPTIVE, SECONDS, workers=workers), workers))

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        for form in (RECORD, BATCH):
            curve = _curve(results, form, "capacity_eps")
            if len(curve) > 1:
                best = max(curve, key=lambda point: point[1])
                told = ", ".join(f"{workers}: {number(eps)}/s" for workers, eps in curve)
                yield Claim(
                    f"Finch, figure 5.4: throughput, {form} form",
                    "throughput grows with the containers until the network is full (Samza, Heron; a cluster)",
                    f"{told}; best with {best[0]}, {ratio(best[1], curve[0][1])} of one; {machine(results)}, so more "
                    f"than {results.header.cores} workers cannot help",
                    best[0] > curve[0][0],
                )
        latency = _curve(results, ADAPTIVE, "p99_ms")
        if len(latency) > 1:
            told = ", ".join(f"{workers}: {ms(took_ms)} ms" for workers, took_ms in latency)
            claimed = "latency grows with the containers, faster when the network is full"
            yield Claim("Finch, figure 5.4: latency", claimed, f"p99 at {number(RATE_EPS)}/s: {told}", None)
        for workers, took_ms in latency:
            if workers == MANY:
                name = f"{WORKLOAD} with {MANY} workers at {number(RATE_EPS)}/s: p99"
                yield Check(name, took_ms, "ms", f"at most {MANY_MS_MAX:g}", took_ms <= MANY_MS_MAX)
        for _, took_ms in _curve(results, ADAPTIVE, "p99_ms", SHUFFLES):
            name = f"six shuffles at {number(SHUFFLES_EPS)}/s: p99"
            yield Check(name, took_ms, "ms", f"at most {SHUFFLES_MS_MAX:g}", took_ms <= SHUFFLES_MS_MAX)
        cores = dict(_curve(results, ADAPTIVE, "cpu_cores"))
        if cores.get(1) and 2 in cores:
            times = cores[2] / cores[1]
            name = f"{WORKLOAD} at {number(RATE_EPS)}/s: processor time of 2 workers against 1"
            yield Check(name, round(times, 2), "times", f"at most {CORES_RATIO_MAX:g}", times <= CORES_RATIO_MAX)

    def figures(self, results: Results) -> list[Figure]:
        def line(label: str, form: str, field: str, *, dashed: bool = False) -> list[Line]:
            curve = _curve(results, form, field)
            return [Line(label, form, [x for x, _ in curve], [y for _, y in curve], dashed=dashed)] if curve else []

        carried = [*line(RECORD, RECORD, "capacity_eps"), *line(BATCH, BATCH, "capacity_eps")]
        latency = [
            *line("adaptive, p50", ADAPTIVE, "p50_ms", dashed=True),
            *line("adaptive, p99", ADAPTIVE, "p99_ms"),
        ]
        if not carried and not latency:
            return []
        ticks = sorted({int(str(row.settings.get("workers", 1))) for row in results.rows})
        marks = [Mark(float(results.header.cores), "cores")]
        panels = [
            Lines("Carried under overload", "workers", "events/s", carried, marks=marks, x_ticks=ticks),
            Lines(f"Latency at {number(RATE_EPS)} events/s", "workers", "ms", latency, marks=marks, x_ticks=ticks),
        ]
        return [Figure("scale", self.title, "Yahoo pipeline, one machine.", panels, columns=2)]


def _named(row: ResultRow, workers: int) -> ResultRow:
    row.settings = {**row.settings, "workers": workers}
    row.variant = f"{workers} workers"
    return row


def _curve(results: Results, form: str, field: str, workload: str = WORKLOAD) -> list[tuple[int, float]]:
    return sorted(
        (int(str(row.settings["workers"])), float(getattr(row, field)))
        for row in results.rows
        if row.workload == workload and row.form == form
        if "workers" in row.settings and getattr(row, field) is not None
    )
