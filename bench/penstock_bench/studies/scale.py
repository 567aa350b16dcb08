"""Workers against throughput and latency (Finch, figure 5.4): more processes on the same machine."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Figure, Line, Lines, Mark, figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, RECORD, Desk, Study, at_most, curve, machine, rows_of

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
        for workers, took_ms in latency:
            if workers == MANY:
                name = f"{WORKLOAD} with {MANY} workers at {number(RATE_EPS)}/s: p99"
                yield at_most(name, took_ms, "ms", MANY_MS_MAX)
        for _, took_ms in _curve(results, ADAPTIVE, "p99_ms", SHUFFLES):
            name = f"six shuffles at {number(SHUFFLES_EPS)}/s: p99"
            yield at_most(name, took_ms, "ms", SHUFFLES_MS_MAX)
        cores = dict(_curve(results, ADAPTIVE, "cpu_cores"))
        if cores.get(1) and 2 in cores:
            name = f"{WORKLOAD} at {number(RATE_EPS)}/s: processor time of 2 workers against 1"
            yield at_most(name, cores[2] / cores[1], "times", CORES_RATIO_MAX, digits=2)

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


def _curve(results: Results, form: str, field: str, workload: str = WORKLOAD) -> list[tuple[int, float]]:
    rows = [row for row in rows_of(results, workload, form, having=field) if "workers" in row.settings]
    return curve(rows, "workers", field)
