"""What the runner shows on the terminal: a progress bar while an engine runs, and tables of what was measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Column, Table

from penstock.dashboard.numbers import human
from penstock_bench.meter.rows import Check, ResultRow
from penstock_bench.meter.runner import Spread
from penstock_bench.report.words import UNKNOWN, faults, figures, grouped, label

BAR_WIDTH = 30
BAR_COLUMNS_MIN = 80
CPU_CORES_SHOWN = 0.005
"""A process below this, and below a megabyte, is not worth a word."""


class _PhaseBar(ProgressColumn):
    """A bar that fills with time where a phase has a length, and pulses where it has none."""

    def render(self, task: Task) -> ProgressBar:
        began, seconds = task.fields["began"], task.fields["seconds"]
        passed = time.monotonic() - began
        if seconds is None:
            return ProgressBar(pulse=True, width=BAR_WIDTH, animation_time=passed)
        return ProgressBar(total=seconds, completed=min(passed, seconds), width=BAR_WIDTH)


class ProgressView:
    """Shows which engine runs and what it is doing: a bar on a terminal, a line for every phase elsewhere."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._began = time.monotonic()
        self._task = progress.add_task("", total=None, began=time.monotonic(), seconds=None)
        self._what = ""

    def begin(self, what: str) -> None:
        """Name the run that follows."""
        self._what = what
        self._progress.reset(self._task, description=what, began=time.monotonic(), seconds=None)

    def tell(self, phase: str, seconds: float | None) -> None:
        """Take what the run is doing now; goes into `RunOptions.tell`."""
        self._progress.update(self._task, description=f"{self._what}: {phase}", began=time.monotonic(), seconds=seconds)
        if self._progress.disable:
            length = "" if seconds is None else f", {seconds:.0f} s"
            passed_s = time.monotonic() - self._began
            print(f"[{passed_s:4.0f} s] {self._what}: {phase}{length}", file=sys.stderr, flush=True)


@contextmanager
def progress_view(console: Console) -> Iterator[ProgressView]:
    """Open the progress bar."""
    # The text is what counts where there is little room: it has a line of its own, and the bar gives way.
    text = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    bars = () if console.width < BAR_COLUMNS_MIN else (_PhaseBar(),)
    columns = (SpinnerColumn(), text, *bars, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield ProgressView(progress)


def number(value: float | None) -> str:
    """Write a figure with as many digits as it is worth."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


_DETAILS = {"p99_ms": ("p99", "ms"), "rate_eps": ("at", "events/s"), "made_eps": ("made beforehand at", "events/s")}


def check_line(check: Check) -> str:
    """Write a figure about the meter."""
    told = [f"{number(check.value)} {check.unit}"]
    for name, value in check.detail.items():
        if name in _DETAILS and isinstance(value, int | float):
            told.append(f"{_DETAILS[name][0]} {number(value)} {_DETAILS[name][1]}")
    how = f"\n  {check.detail['how']}" if "how" in check.detail else ""
    missed = "" if check.met else f"; NOT {check.target}"
    return f"{check.name}: {', '.join(told)}{missed}{how}"


def row_lines(row: ResultRow) -> list[str]:
    """Write a measurement: figures, exactness, processes, settings."""
    offered = "" if row.rate is None else f" at {row.rate:,.0f}/s"
    growth = row.backlog_growth or 0.0
    lines = [
        f"{row.workload} on {row.engine}:{row.variant} {row.version}{offered}, {row.seconds:g} s: "
        f"p50 {number(row.p50_ms)} ms, p90 {number(row.p90_ms)}, p99 {number(row.p99_ms)}, "
        f"p99.9 {number(row.p999_ms)}, max {number(row.max_ms)}",
        f"  {number(row.throughput_eps)} events/s came through, {row.results:,} rows; "
        f"{'sustained' if row.sustained else 'NOT sustained'}: the backlog {'grew' if growth >= 0 else 'shrank'} by "
        f"{abs(growth):.1%} of what was offered",
        f"  {exactness(row)}",
        f"  {number(row.cpu_cores)} cores, {row.memory_mb or 0.0:,.0f} MB in all: "
        + "; ".join(
            f"{each.name}{f' x{each.processes}' if each.processes > 1 else ''} {each.cpu_cores:.2f} cores "
            f"{each.memory_mb or 0.0:,.0f} MB"
            for each in row.processes
            if each.cpu_cores >= CPU_CORES_SHOWN or (each.memory_mb or 0.0) >= 1
        ),
    ]
    if row.generator_lag_ms is not None:
        lines.append(f"  the generator was late by {number(row.generator_lag_ms)} ms at p99")
    if row.settings:
        lines.append("  settings: " + ", ".join(f"{name}={value}" for name, value in row.settings.items()))
    if row.note:
        lines.append(f"  {row.note}")
    return lines


def exactness(row: ResultRow) -> str:
    """Say whether the output was exact."""
    return f"NOT EXACT: {faults(row)}" if row.faults else "exact: nothing lost, duplicated, wrong or reordered"


_BESIDE = figures("rate", "p90_ms", "sustained_eps", "capacity_eps")


def comparison_tables(rows: Iterable[ResultRow]) -> list[Table]:
    """Put engines side by side, a table for each rate: the median of the repetitions, below it least and largest.

    One below the other, because three figures beside each other would not fit into a terminal of 80 columns.
    """
    return [_comparison(rate, grouped(own, "engine", "variant")) for rate, own in grouped(rows, "rate").items()]


def rows_table(rows: Iterable[ResultRow]) -> Table:
    """Put everything that a study has measured into one table."""
    shown = figures("p90_ms", "throughput_eps")
    table = Table("workload", "form or engine", box=None, pad_edge=False)
    for title in (*shown.values(), "not exact"):
        table.add_column(title, justify="right")
    for row in rows:
        values = [getattr(row, name) for name in shown]
        exact = "" if row.lost is None else f"{sum(row.faults.values()):,}"
        table.add_row(row.workload, label(row), *("" if each is None else _short(each) for each in values), exact)
    return table


def _comparison(rate: float | None, by_engine: dict[tuple[str, str], list[ResultRow]]) -> Table:
    most = max(map(len, by_engine.values()))
    spread_told = f", median of {most} runs, least and largest below it" if most > 1 else ""
    table = Table(title=f"{number(rate)} events/s{spread_told}", title_justify="left", box=None, pad_edge=False)
    table.add_column("engine", no_wrap=True)
    for title in (*_BESIDE.values(), "kept up", "exact"):
        table.add_column(title, justify="right", vertical="top")
    for engine, each in ((":".join(pair), runs) for pair, runs in by_engine.items()):
        cells = []
        for name in _BESIDE:
            spread = Spread.of(getattr(row, name) for row in each)
            values = () if spread is None else (spread.median, spread.low, spread.high)
            cells.append("\n".join(map(_short, values if len(each) > 1 else values[:1])) or UNKNOWN)
        kept = sum(bool(row.sustained) for row in each)
        exact = sum(not row.faults for row in each)
        named = f"{engine}\n  least\n  largest" if len(each) > 1 else engine
        table.add_row(named, *cells, f"{kept}/{len(each)}", f"{exact}/{len(each)}")
    return table


def _short(value: float) -> str:
    """Write a figure in at most six characters: 0.41, 26.6, 1,005, 19.8K, 2.69M."""
    if abs(value) >= 10_000:
        return human(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
