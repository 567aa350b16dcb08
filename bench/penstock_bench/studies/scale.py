"""Workers against throughput and latency (Finch, figure 5.4): more processes on the same machine."""

from __future__ import annotations

from penstock_bench.meter.rows import Claim, ResultRow, Results
from penstock_bench.report.chart import Figure, Line, Lines, Mark, figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import ADAPTIVE, BATCH, RECORD, Desk, Study
from penstock_bench.studies.findings import Findings, at_most, listed

WORKERS, QUICK_WORKERS = (1, 2, 3, 4), (1,)
MANY = 8
SECONDS = 5.0
RATE_EPS = 20_000.0
WORKLOAD = "yahoo"
SHUFFLES, SHUFFLES_EPS = "shuffles", 5_000.0
MANY_MS_MAX, SHUFFLES_MS_MAX, CORES_RATIO_MAX = 6.0, 10.0, 1.5
"""What latency (p99), and what processor time of two workers against that of one, is aimed at."""


class Scale(Study):
    """The Yahoo pipeline with 1 to 4 workers (and as many slots) on one machine: what gets through under overload in
    record and in batch form, and the latency of the adaptive form at 20,000 events/s, with 8 workers too; the latency
    of six shuffles in a row at 5,000 events/s.
    """

    name = "scale"
    title = "Workers against throughput and latency"
    after = "Finch, figure 5.4"

    def run(self, desk: Desk) -> None:
        def calm(name: str, rate: float, workers: int) -> None:
            desk.at_rate(name, rate, ADAPTIVE, SECONDS, workers=workers, variant=f"{workers} workers")

        quick = desk.options.quick
        for workers in QUICK_WORKERS if quick else WORKERS:
            for form in (RECORD,) if quick else (RECORD, BATCH):
                desk.overload(WORKLOAD, form, SECONDS, workers=workers, variant=f"{workers} workers")
            calm(WORKLOAD, RATE_EPS, workers)
        if not quick:
            calm(WORKLOAD, RATE_EPS, MANY)
            calm(SHUFFLES, SHUFFLES_EPS, 2)

    def findings(self, results: Results) -> Findings:
        for form in (RECORD, BATCH):
            carried = {_workers(row): row.capacity_eps or 0.0 for row in _rows(results, form, "capacity_eps")}
            if len(carried) > 1:
                best, least = max(carried, key=lambda workers: carried[workers]), min(carried)
                yield Claim(
                    f"Finch, figure 5.4: throughput, {form} form",
                    "throughput grows with the containers until the network is full (Samza, Heron; a cluster)",
                    f"{listed((workers, f'{number(eps)}/s') for workers, eps in carried.items())}; best with {best}, "
                    f"{ratio(carried[best], carried[least])} of one; {results.machine}, so more than "
                    f"{results.header.cores} workers cannot help",
                    best > least,
                )
        latency = _rows(results, ADAPTIVE, "p99_ms")
        if len(latency) > 1:
            told = listed((_workers(row), f"{ms(row.p99_ms)} ms") for row in latency)
            claimed = "latency grows with the containers, faster when the network is full"
            yield Claim("Finch, figure 5.4: latency", claimed, f"p99 at {number(RATE_EPS)}/s: {told}", None)
        many = [row for row in latency if _workers(row) == MANY]
        shuffled = _rows(results, ADAPTIVE, "p99_ms", SHUFFLES)
        for name, rows, most_ms in (
            (f"{WORKLOAD} with {MANY} workers at {number(RATE_EPS)}/s: p99", many, MANY_MS_MAX),
            (f"six shuffles at {number(SHUFFLES_EPS)}/s: p99", shuffled, SHUFFLES_MS_MAX),
        ):
            for row in rows:
                yield at_most(name, row.p99_ms or 0.0, "ms", most_ms)
        cores = {_workers(row): row.cpu_cores or 0.0 for row in _rows(results, ADAPTIVE, "cpu_cores")}
        if cores.get(1) and 2 in cores:
            name = f"{WORKLOAD} at {number(RATE_EPS)}/s: processor time of 2 workers against 1"
            yield at_most(name, cores[2] / cores[1], "times", CORES_RATIO_MAX, digits=2)

    def figures(self, results: Results) -> list[Figure]:
        def line(label: str, form: str, field: str, **style: bool) -> Line:
            points = [(_workers(row), getattr(row, field)) for row in _rows(results, form, field)]
            return Line.of(label, form, points, **style)

        carried = [line(form, form, "capacity_eps") for form in (RECORD, BATCH)]
        latency = [line("adaptive, p50", ADAPTIVE, "p50_ms", dashed=True), line("adaptive, p99", ADAPTIVE, "p99_ms")]
        ticks = sorted({int(str(row.settings.get("workers", 1))) for row in results.rows})
        marks = [Mark(float(results.header.cores), "cores")]
        panels = [
            Lines("Carried under overload", "workers", "events/s", carried, marks=marks, x_ticks=ticks),
            Lines(f"Latency at {number(RATE_EPS)} events/s", "workers", "ms", latency, marks=marks, x_ticks=ticks),
        ]
        return figure("scale", self.title, "Yahoo pipeline, one machine.", panels, columns=2)


def _rows(results: Results, form: str, field: str, workload: str = WORKLOAD) -> list[ResultRow]:
    rows = results.rows_of(workload, form, having=field)
    return sorted((row for row in rows if "workers" in row.settings), key=_workers)


def _workers(row: ResultRow) -> int:
    return int(str(row.settings["workers"]))
