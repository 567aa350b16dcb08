"""Figures that any file of results can have, from its rows alone: latency over rate, components, bars. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock_bench.meter.rows import ResultRow, Results
from penstock_bench.meter.runner import Spread
from penstock_bench.report.chart import Bar, Bars, Figure, Groups, Line, Lines, Stack, figure
from penstock_bench.report.theme import colour
from penstock_bench.report.words import in_order, label, number

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


def _workloads(rows: Sequence[ResultRow]) -> list[str]:
    return list(dict.fromkeys(row.workload for row in rows))


def at_a_rate(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Rows of undisturbed runs at a fixed rate, with their latency."""
    return [
        row
        for row in rows
        if row.rate and row.p50_ms and row.p99_ms is not None and not row.sustained_eps and KILLED not in row.note
    ]


def latency_over_rate(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """Latency against the offered rate, p50 and p99, for each workload of which a form or engine has several rates."""
    measured = at_a_rate(rows)
    panels: list[Lines] = []
    for workload in _workloads(measured):
        own = [row for row in measured if row.workload == workload]
        rates = sorted({row.rate or 0.0 for row in own})
        if len({(label(row), row.rate) for row in own}) == len({label(row) for row in own}):
            continue
        panels += [_over_rate(workload, own, rates, q) for q in ("p50", "p99")]
    caption = (
        "From the scheduled time of an event to its result; both axes logarithmic. Where repeated: the median, and the "
        "range of the repetitions shaded. Hollow: a rate that was not kept up with."
    )
    return figure(slug, "Latency over rate", caption, panels, columns=2)


def _over_rate(workload: str, rows: Sequence[ResultRow], rates: Sequence[float], quantile: str) -> Lines:
    lines = []
    for key in in_order(map(label, rows)):
        points = []
        for rate in rates:
            runs = [row for row in rows if label(row) == key and row.rate == rate]
            found = Spread.of(getattr(row, f"{quantile}_ms") for row in runs)
            if found is not None:
                points.append((rate, found, any(row.sustained is False for row in runs)))
        x, spreads, hollow = zip(*points, strict=True) if points else ((), (), ())
        repeated = any(each.low < each.high for each in spreads)
        lines.append(
            Line(
                label=key,
                key=key,
                x=x,
                y=[each.median for each in spreads],
                low=[each.low for each in spreads] if repeated else (),
                high=[each.high for each in spreads] if repeated else (),
                hollow=hollow,
            )
        )
    return Lines(
        f"{workload}: {quantile}", "offered events/s", f"{quantile}, ms", lines, x_log=True, y_log=True, x_ticks=rates
    )


def distributions(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """The distribution of latency at some rates of each workload."""
    found = []
    known = [row for row in rows if row.cdf and row.rate]
    for workload in _workloads(known):
        own = [row for row in known if row.workload == workload]
        rates = sorted({row.rate or 0.0 for row in own})
        if len(rates) > CDF_RATES_MAX:
            rates = [rates[0], rates[len(rates) // 2], rates[-1]]
        panels = [_distribution(f"{number(rate)} events/s", [row for row in own if row.rate == rate]) for rate in rates]
        caption = "Share of the events whose result had come after so many milliseconds; the x axis is logarithmic."
        name = re.sub(r"[^\w.-]+", "-", workload)
        found += figure(f"{slug}-{name}", f"Distribution of latency: {workload}", caption, panels)
    return found


def _distribution(title: str, rows: Sequence[ResultRow]) -> Lines:
    lines: list[Line] = []
    for key in in_order(map(label, rows)):
        row = next(each for each in rows if label(each) == key)
        shares, ms = zip(*row.cdf, strict=True)
        # Variants of an engine have its colour, and must be told apart.
        dashed = any(colour(key) == colour(line.key) for line in lines)
        x, y = [max(each, 0.01) for each in ms], [100 * share for share in shares]
        lines.append(Line(key, key, x, y, markers=False, dashed=dashed))
    return Lines(title, "latency, ms", "events, %", lines, x_log=True, y_max=102)


def components(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """What the mean latency is made of, for each workload and rate."""
    known = [row for row in rows if row.components_ms and row.rate]
    panels = []
    for workload, rate in dict.fromkeys((row.workload, row.rate) for row in known):
        own = [row for row in known if (row.workload, row.rate) == (workload, rate)]
        # Repetitions would stand under the same name: the last one is shown.
        by_form = {label(row): row for row in own}
        names = in_order(by_form)
        parts = {each: [by_form[name].components_ms.get(each, 0.0) for name in names] for each in COMPONENTS}
        panels.append(Stack(f"{workload}, {number(rate)} events/s", "mean latency, ms", names, parts))
    caption = (
        "out: before the source has read the event; wait: for the rest of its micro-batch; schedule: the micro-batch's "
        "way to a slot and its turn there; process; transmit: between processes and in queues. Scales differ."
    )
    return figure(slug, "Components of latency", caption, panels)


def operations(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """Latency of each operation, for each workload and rate."""
    known = [row for row in rows if row.operations and row.rate]
    panels = []
    for workload, rate in dict.fromkeys((row.workload, row.rate) for row in known):
        own = {label(row): row for row in known if (row.workload, row.rate) == (workload, rate)}
        names = list(dict.fromkeys(each.name for row in own.values() for each in row.operations))
        values = {
            key: [next((each.latency_ms for each in own[key].operations if each.name == name), None) for name in names]
            for key in in_order(own)
        }
        panels.append(Groups(f"{workload}, {number(rate)} events/s", "mean latency, ms", names, values, log=True))
    caption = (
        "From the end of the operation before to the end of this one, the way between processes included; logarithmic. "
        "A range in batch form shows its waiting at its first operation."
    )
    return figure(slug, "Latency of each operation", caption, panels)


def throughput(rows: Sequence[ResultRow], slug: str) -> list[Figure]:
    """The most that each form or engine has carried, and has sustained."""
    panels = []
    titles = {"sustained_eps": "sustained", "capacity_eps": "carried under overload"}
    for field, title in titles.items():
        known = [row for row in rows if getattr(row, field)]
        for workload in _workloads(known):
            own = [row for row in known if row.workload == workload]
            bars = []
            for key in in_order(map(label, own)):
                found = Spread.of(runs := [getattr(row, field) for row in own if label(row) == key])
                assert found is not None
                bars.append(Bar(key, key, found.median, found.low, found.high, len(runs)))
            panels.append(Bars(f"{workload}: {title}", "events/s", bars))
    caption = (
        "Sustained: the highest rate at which the backlog does not grow, found by search. Carried: what gets through "
        "when more is offered. Median of the runs, with the least and the largest as whiskers."
    )
    return figure(slug, "Throughput", caption, panels, columns=2)
