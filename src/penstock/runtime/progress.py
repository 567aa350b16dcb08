"""A job at one moment for a REPL or a notebook: lines of text, or a table; `Job.progress` and `Job.watch` use it."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from penstock.control.monitor import Status

WATCH_S = 0.5
"""How often a table that is watched is drawn anew."""
_HEAD = ("operation", "form", "records in", "records out", "per second", "queue", "p50 ms", "p99 ms", "late")


class Progress(msgspec.Struct, frozen=True):
    """How far a job is: a line for the job, and one for each operation.

    Attributes
    ----------
    job, phase : str
        The job's name, and what it is doing.
    seconds : float
        How long it has run.
    epoch : int
        The last epoch that is committed.
    records_in, results_out : int
        What the sources have read, and what the sinks have been given.
    operations : list of dict
        Name, form, counts, rate, queue and latency of each operation.
    waiting : list of str
        What the job waits for, if it does.
    """

    job: str
    phase: str
    seconds: float
    epoch: int
    records_in: int
    results_out: int
    operations: list[dict[str, Any]]
    waiting: list[str]

    @staticmethod
    def of(status: Status, sources: set[str], sinks: set[str]) -> Progress:
        """Read what the job says of itself."""
        figures = status.operations
        return Progress(
            status.job,
            status.phase,
            round(status.uptime_s, 1),
            status.epoch,
            sum(each.records_out for each in figures if each.name in sources),
            sum(each.records_in for each in figures if each.name in sinks),
            [
                {
                    "operation": each.name,
                    "form": each.form,
                    "records in": each.records_in,
                    "records out": each.records_out,
                    "per second": round(each.out_eps),
                    "queue": each.queue_records,
                    "p50 ms": round(each.p50_ms, 2),
                    "p99 ms": round(each.p99_ms, 2),
                    "late": each.late,
                }
                for each in figures
            ],
            list(status.waiting),
        )

    @property
    def headline(self) -> str:
        """The job in one line."""
        counts = f"{self.records_in:,} records in, {self.results_out:,} results out"
        waits = f"; waits for {'; '.join(self.waiting)}" if self.waiting else ""
        return f"job '{self.job}' {self.phase} for {self.seconds:g} s, epoch {self.epoch}: {counts}{waits}"

    def __repr__(self) -> str:
        rows = [_HEAD, *(tuple(map(_cell, each.values())) for each in self.operations)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) if not i else cell.rjust(width) for i, (cell, width) in enumerate(cells))
            for cells in (zip(row, widths, strict=True) for row in rows)
        ]
        return "\n".join([self.headline, *lines])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        head = "".join(f"<th>{html.escape(each)}</th>" for each in _HEAD)
        rows = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_cell(value))}</td>' for value in each.values())}</tr>"
            for each in self.operations
        )
        return f"<p>{html.escape(self.headline)}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def screen() -> Callable[[Progress], None]:
    """Where progress is drawn again and again: a cell of a notebook, or the terminal, a line for each change."""
    if "ipykernel" in sys.modules:
        handle: Any = import_module("IPython.display").display(None, display_id=True)
        update: Callable[[Progress], None] = handle.update
        return update
    seen: list[str] = []

    def line(progress: Progress) -> None:
        if seen != [progress.headline]:
            seen[:] = [progress.headline]
            sys.stderr.write(f"{progress.headline}\n")

    return line
