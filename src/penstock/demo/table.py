"""Runs through the same burst side by side: the last table of the demo, on the terminal and in its page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from penstock.dashboard.numbers import human, measure
from penstock.demo.series import BurstFigures

TITLES = {"adaptive": "adaptive", "record": "record only", "batch": "batch only"}


@dataclass(frozen=True)
class Line:
    """One line of the table: less is better, where it is compared at all."""

    title: str
    value: Callable[[BurstFigures], float | None]
    shown: Callable[[float], str]
    compared: bool = True
    absent: str = "–"
    """What stands where there is no value."""


def _ms(value: float) -> str:
    return f"{measure(value)} ms"


def _s(value: float) -> str:
    return f"{value:.1f} s"


def _count(value: float) -> str:
    return f"{value:,.0f}"


LINES = (
    Line("latency, median", lambda run: run.p50_ms, _ms),
    Line("latency, p99", lambda run: run.p99_ms, _ms),
    Line("latency, max", lambda run: run.max_ms, _ms),
    Line("p99 while calm", lambda run: run.calm_p99_ms, _ms),
    Line("p99 of the burst's events", lambda run: run.burst_p99_ms, _ms),
    Line("backlog, max", lambda run: run.backlog_max, human),
    Line("burst over → queue gone", lambda run: run.drained_s, _s, absent="not seen"),
    Line("burst over → latency normal", lambda run: run.normal_s, _s, absent="not seen"),
    Line("switches", lambda run: run.switches, _count, compared=False),
    Line("longest pause", lambda run: run.pause_ms_max if run.switches else None, _ms, compared=False),
    Line("lost", lambda run: run.lost, _count, compared=False),
    Line("duplicated", lambda run: run.duplicated, _count, compared=False),
    Line("reordered", lambda run: run.reordered, _count, compared=False),
)
_FAULTS = ("lost", "duplicated", "reordered")


def cells(runs: Sequence[BurstFigures]) -> list[tuple[str, list[str], int | None]]:
    """The table as text: title, a value for each run, and which of them is the best, if one is."""
    rows = []
    for line in LINES:
        values = [line.value(each) for each in runs]
        known = [value for value in values if value is not None]
        best = None
        if line.compared and len(known) > 1 and known.count(min(known)) == 1:
            best = values.index(min(known))
        rows.append((line.title, [line.absent if value is None else line.shown(value) for value in values], best))
    return rows


def comparison(runs: Sequence[BurstFigures]) -> Table:
    """Draw the table; the best of a line stands out, and so does every fault."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for each in runs:
        table.add_column(TITLES[each.forms], justify="right", min_width=11)
    for title, values, best in cells(runs):
        shown = [Text(value, style="bold green" if at == best else "none") for at, value in enumerate(values)]
        if title in _FAULTS:
            shown = [Text(value, style="green" if value == "0" else "bold red") for value in values]
        table.add_row(title, *shown)
    return table
