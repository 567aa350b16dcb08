"""What the runner shows on the terminal: a progress bar while an engine runs, and tables of what was measured."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table

from penstock.bench.rows import Check, ResultRow
from penstock.bench.runner import Spread

BAR_WIDTH = 30


class _PhaseBar(ProgressColumn):
    """A bar that fills with time where a phase has a length, and pulses where it has none."""

    def render(self, task: Task) -> ProgressBar:
        began, seconds = task.fields["began"], task.fields["seconds"]
        passed = time.monotonic() - began
        if seconds is None:
            return ProgressBar(pulse=True, width=BAR_WIDTH, animation_time=passed)
        return ProgressBar(total=seconds, completed=min(passed, seconds), width=BAR_WIDTH)


class ProgressView:
    """Shows which engine runs and what it is doing; silent where there is no terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, began=time.monotonic(), seconds=None)
        self._what = ""

    def begin(self, what: str) -> None:
        """Name the run that follows."""
        self._what = what
        self._progress.reset(self._task, description=what, began=time.monotonic(), seconds=None)

    def tell(self, phase: str, seconds: float | None) -> None:
        """Take what the run is doing now; goes into `RunOptions.tell`."""
        self._progress.update(self._task, description=f"{self._what}: {phase}", began=time.monotonic(), seconds=seconds)


@contextmanager
def progress_view(console: Console) -> Iterator[ProgressView]:
    """Open the progress bar."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), _PhaseBar(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield ProgressView(progress)


def number(value: float | None) -> str:
    """Write a figure with as many digits as it is worth."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


def check_line(check: Check) -> str:
    """Write a figure about the meter."""
    details = ", ".join(f"{name} {number(v) if isinstance(v, float) else v}" for name, v in check.detail.items())
    return f"{check.name}: {number(check.value)} {check.unit} ({details})"


def row_lines(row: ResultRow) -> list[str]:
    """Write a measurement: figures, exactness, processes, settings."""
    offered = "" if row.rate is None else f" at {row.rate:,.0f}/s"
    lines = [
        f"{row.workload} on {row.engine}:{row.variant} {row.version}{offered}, {row.seconds:g} s: "
        f"p50 {number(row.p50_ms)} ms, p90 {number(row.p90_ms)}, p99 {number(row.p99_ms)}, "
        f"p99.9 {number(row.p999_ms)}, max {number(row.max_ms)}",
        f"  {number(row.throughput_eps)} events/s came through, {row.results:,} rows; "
        f"{'sustained' if row.sustained else 'NOT sustained'}: the backlog grew by "
        f"{(row.backlog_growth or 0.0):.1%} of what was offered",
        f"  {exactness(row)}",
        f"  {number(row.cpu_cores)} cores, {number(row.rss_mb)} MB in all: "
        + "; ".join(
            f"{each.name}{f' x{each.processes}' if each.processes > 1 else ''} {each.cpu_cores:.2f} cores "
            f"{each.rss_mb:,.0f} MB"
            for each in row.processes
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
    counts = {"lost": row.lost, "duplicated": row.duplicated, "wrong": row.wrong, "reordered": row.reordered}
    if not any(counts.values()):
        return "exact: nothing lost, duplicated, wrong or reordered"
    return "NOT EXACT: " + ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


def is_exact(row: ResultRow) -> bool:
    """Whether the output was exact."""
    return not any((row.lost, row.duplicated, row.wrong, row.reordered))


_FIGURES: Sequence[tuple[str, str]] = (
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("p999_ms", "p99.9 ms"),
    ("max_ms", "max ms"),
    ("throughput_eps", "through/s"),
    ("cpu_cores", "cores"),
    ("rss_mb", "RSS MB"),
)


def comparison_table(rows: Iterable[ResultRow]) -> Table:
    """Put engines side by side: the median of their repetitions, and the least and the largest of them."""
    groups: dict[tuple[float | None, str], list[ResultRow]] = {}
    for row in rows:
        groups.setdefault((row.rate, f"{row.engine}:{row.variant}"), []).append(row)
    table = Table("rate/s", "engine", "runs", title="median [least … largest]")
    for _, title in _FIGURES:
        table.add_column(title, justify="right")
    table.add_column("kept up")
    table.add_column("exact")
    for (rate, engine), each in groups.items():
        cells = []
        for name, _ in _FIGURES:
            spread = Spread.of(getattr(row, name) for row in each)
            if spread is None:
                cells.append("–")
            elif len(each) == 1:
                cells.append(number(spread.median))
            else:
                cells.append(f"{number(spread.median)} [{number(spread.low)} … {number(spread.high)}]")
        kept = sum(bool(row.sustained) for row in each)
        exact = sum(map(is_exact, each))
        table.add_row(number(rate), engine, str(len(each)), *cells, f"{kept}/{len(each)}", f"{exact}/{len(each)}")
    return table
