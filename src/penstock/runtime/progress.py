"""A job at one moment for a REPL or a notebook: lines of text, or a table; `Job.progress` and `Job.watch` use it."""

from __future__ import annotations

import html
from typing import Any

import msgspec

from penstock.control.monitor import Status

_HEAD = ("operation", "form", "records in", "records out", "per second", "queue", "p50 ms", "p99 ms", "late")

ROWS_MAX = 100
"""Operations that a notebook shows."""
_COLORS = {
    "running": "#2a9d4a",
    **dict.fromkeys(("starting", "waits", "draining", "ending"), "#c98a00"),
    "failed": "#c0392b",
    "ended": "#888888",
}
_STYLE = (
    "<style>"
    ".penstock-job p { margin: 0.3em 0 }"
    ".penstock-job table { font-variant-numeric: tabular-nums; border-collapse: collapse; margin: 0.3em 0 }"
    ".penstock-job th, .penstock-job td { text-align: right; padding: 0.15em 0.7em }"
    ".penstock-job th:nth-child(-n+2), .penstock-job td:nth-child(-n+2) { text-align: left }"
    ".penstock-job thead th { border-bottom: 1px solid #888888 }"
    ".penstock-job pre { color: #c0392b; white-space: pre-wrap }"
    "</style>"
)


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
    error : str
        Why the job has failed, if it has.
    """

    job: str
    phase: str
    seconds: float
    epoch: int
    records_in: int
    results_out: int
    operations: list[dict[str, Any]]
    waiting: list[str]
    error: str = ""

    @staticmethod
    def of(status: Status, sources: set[str], sinks: set[str], error: BaseException | None = None) -> Progress:
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
            "" if error is None else str(error),
        )

    @property
    def headline(self) -> str:
        """The job in one line."""
        counts = f"{self.records_in:,} records in, {self.results_out:,} results out"
        waits = f"; waits for {'; '.join(self.waiting)}" if self.waiting else ""
        since = "" if self.phase in ("ended", "failed") else f" for {self.seconds:g} s"
        return f"job '{self.job}' {self.phase}{since}, epoch {self.epoch}: {counts}{waits}"

    def __repr__(self) -> str:
        rows = [_HEAD, *(tuple(map(_cell, each.values())) for each in self.operations)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) if not i else cell.rjust(width) for i, (cell, width) in enumerate(cells))
            for cells in (zip(row, widths, strict=True) for row in rows)
        ]
        return "\n".join([self.headline, *lines, *([self.error] if self.error else [])])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        head = "".join(f"<th>{html.escape(each)}</th>" for each in _HEAD)
        rows = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_cell(value))}</td>' for value in each.values())}</tr>"
            for each in self.operations[:ROWS_MAX]
        )
        left = len(self.operations) - ROWS_MAX
        more = f"<p>and {left:,} operations more</p>" if left > 0 else ""
        error = f"<pre>{html.escape(self.error)}</pre>" if self.error else ""
        mark = "failed" if self.error else "waits" if self.waiting else self.phase
        color = _COLORS.get(mark, _COLORS["running"])
        title = f'<p><span style="color: {color}">●</span> {html.escape(self.headline)}</p>'
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f'<div class="penstock-job">{_STYLE}{title}{table}{more}{error}</div>'


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}" if isinstance(value, float) else str(value)
