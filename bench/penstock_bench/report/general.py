"""Figures that any file of results can have, from its rows alone: latency over rate, components, bars. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock_bench.meter.rows import ResultRow, Results
from penstock_bench.meter.runner import Spread
from penstock_bench.report.chart import Bar, Bars, Figure, Groups, Line, Lines, Stack, figure
from penstock_bench.report.words import by_label, grouped, number

COMPONENTS = ("out", "wait", "schedule", "process", "transmit")
KILLED = "killed"
"""Notes of runs whose workers were killed have this word: they are no repetitions of those that went undisturbed."""
CDF_RATES_MAX = 3
"""Distributions are shown for the lowest, a middle and the highest rate."""


def figures(results: Results, slug: str) -> list[Figure]:
    """All figures that the rows of a file are enough for."""
    rows = results.rows
    return [
        *latency_over_rate(rows, f"{slug}-latency-over-rate"),
        *distributions(rows, f"{slug}-distribution"),
        *components(rows, f"{slug}-components"),
        *throughput(rows, f"{slug}-throughput"),
    ]


def at_a_rate(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Rows of undisturbed runs at a fixed rate, with their latency."""
    return [
        row
        for row in rows
        if row.rate and row.p50_ms and row.p99_ms is not None and not row.sustained_eps and KILLED not in row.note
    ]


def _rates(rows: Sequence[ResultRow]) -> list[float]:
    return sorted({row.rate or 0.0 for row in rows})


def latency_over_rate(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """Latency against the offered rate, p50 and p99, for each workload of which a form or engine has several rates."""
    panels = [
        _over_rate(workload, own, quantile)
        for workload, own in grouped(at_a_rate(rows), "workload").items()
        if any(len(_rates(each)) > 1 for each in by_label(own).values())
        for quantile in ("p50", "p99")
    ]
    caption = (
        "From the scheduled time of an event to its result; both axes logarithmic. Where repeated: the median, and the "
        "range of the repetitions shaded. Hollow: a rate that was not kept up with."
    )
    return figure(slug, "Latency over rate", caption, panels, columns=2)


def _over_rate(workload: str, rows: Sequence[ResultRow], quantile: str) -> Lines:
    lines = []
    for key, own in by_label(rows).items():
        runs = {rate: [row for row in own if row.rate == rate] for rate in _rates(own)}
        found = [Spread.of(getattr(row, f"{quantile}_ms") for row in each) for each in runs.values()]
        spreads = [each for each in found if each is not None]
        shaded = any(each.low < each.high for each in spreads)
        line = Line(
            label=key,
            key=key,
            x=list(runs),
            y=[each.median for each in spreads],
            low=[each.low for each in spreads] if shaded else (),
            high=[each.high for each in spreads] if shaded else (),
            hollow=[any(row.sustained is False for row in each) for each in runs.values()],
        )
        lines.append(line)
    title, axis = f"{workload}: {quantile}", f"{quantile}, ms"
    return Lines(title, "offered events/s", axis, lines, x_log=True, y_log=True, x_ticks=_rates(rows))


def distributions(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """The distribution of latency at some rates of each workload."""
    found = []
    for workload, own in grouped([row for row in rows if row.cdf and row.rate], "workload").items():
        rates = _rates(own)
        if len(rates) > CDF_RATES_MAX:
            rates = [rates[0], rates[len(rates) // 2], rates[-1]]
        panels = [_distribution(f"{number(rate)} events/s", [row for row in own if row.rate == rate]) for rate in rates]
        caption = "Share of the events whose result had come after so many milliseconds; the x axis is logarithmic."
        name = re.sub(r"[^\w.-]+", "-", workload)
        found += figure(f"{slug}-{name}", f"Distribution of latency: {workload}", caption, panels)
    return found


def _distribution(title: str, rows: Sequence[ResultRow]) -> Lines:
    points = {key: [(max(ms, 0.01), 100 * share) for share, ms in own[0].cdf] for key, own in by_label(rows).items()}
    lines = [Line.of(key, key, each) for key, each in points.items()]
    return Lines(title, "latency, ms", "events, %", lines, x_log=True, y_max=102)


def components(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """What the mean latency is made of, for each workload and rate."""
    panels = []
    for (workload, rate), own in grouped([r for r in rows if r.components_ms and r.rate], "workload", "rate").items():
        # Repetitions would stand under the same name: the last one is shown.
        last = {key: each[-1].components_ms for key, each in by_label(own).items()}
        parts = {part: [each.get(part, 0.0) for each in last.values()] for part in COMPONENTS}
        panels.append(Stack(f"{workload}, {number(rate)} events/s", "mean latency, ms", list(last), parts))
    caption = (
        "out: before the source has read the event; wait: for the rest of its micro-batch; schedule: the micro-batch's "
        "way to a slot and its turn there; process; transmit: between processes and in queues. Scales differ."
    )
    return figure(slug, "Components of latency", caption, panels)


def operations(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """Latency of each operation, for each workload and rate."""
    panels = []
    for (workload, rate), own in grouped([r for r in rows if r.operations and r.rate], "workload", "rate").items():
        last = {key: {op.name: op.latency_ms for op in each[-1].operations} for key, each in by_label(own).items()}
        names = list(dict.fromkeys(op.name for row in own for op in row.operations))
        values = {key: [each.get(name) for name in names] for key, each in last.items()}
        panels.append(Groups(f"{workload}, {number(rate)} events/s", "mean latency, ms", names, values, log=True))
    caption = (
        "From the end of the operation before to the end of this one, the way between processes included; logarithmic. "
        "A range in batch form shows its waiting at its first operation."
    )
    return figure(slug, "Latency of each operation", caption, panels)


def throughput(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """The most that each form or engine has carried, and has sustained."""
    panels = []
    for field, title in {"sustained_eps": "sustained", "capacity_eps": "carried under overload"}.items():
        for workload, own in grouped([row for row in rows if getattr(row, field)], "workload").items():
            runs = {key: [getattr(row, field) for row in each] for key, each in by_label(own).items()}
            bars = [
                Bar(key, key, found.median, found.low, found.high, len(each))
                for key, each in runs.items()
                if (found := Spread.of(each)) is not None
            ]
            panels.append(Bars(f"{workload}: {title}", "events/s", bars))
    caption = (
        "Sustained: the highest rate at which the backlog does not grow, found by search. Carried: what gets through "
        "when more is offered. Median of the runs, with the least and the largest as whiskers."
    )
    return figure(slug, "Throughput", caption, panels, columns=2)
