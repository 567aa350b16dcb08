"""One frame of the live view as a function of a job's status; `penstock top`, `run` and `demo` all show it."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.control.monitor import OperationFigures, Status
from penstock.control.scheduler import Phase
from penstock.dashboard.numbers import human, measure, span

QUIET_S = 3.0
"""A status older than this is shown with its age."""
QUEUE_HIGH = 10_000
"""From here on a queue stands out."""
WORKERS_SHOWN_MAX = 8
_NOTHING = "·"
_PHASE_STYLES = {
    Phase.STARTING.value: "yellow",
    Phase.RUNNING.value: "green",
    Phase.DRAINING.value: "yellow",
    Phase.ENDING.value: "yellow",
    Phase.ENDED.value: "dim",
}


def frame(status: Status, *, note: str = "", age_s: float = 0.0) -> RenderableType:
    """Draw a status.

    Parameters
    ----------
    status : Status
        The job at one moment.
    note : str
        Last line: what the user can do, or what was asked for.
    age_s : float
        How old the status is.
    """
    parts: list[RenderableType] = [_header(status, age_s), _workers(status), _operations(status.operations)]
    lines = [line for line in (_losses(status.operations), Text(note, style="dim")) if line.plain]
    return Group(*parts, *lines)


def _header(status: Status, age_s: float) -> Text:
    style = _PHASE_STYLES.get(status.phase, "red")
    text = Text.assemble(("penstock ", "bold"), (status.job, "bold cyan"), "   ", ("● ", style), (status.phase, style))
    text.append(f"   up {span(status.uptime_s)}   epoch {status.epoch}")
    if status.epoch_ms:
        text.append(f" ({measure(status.epoch_ms)} ms)")
    if age_s >= QUIET_S:
        text.append(f"   no news for {span(age_s)}", style="bold red")
    return text


def _workers(status: Status) -> Text:
    if not status.workers:
        return Text("waiting for the workers", style="dim")
    shown = [
        f"worker {each.worker}: {each.cpu_cores * 100:.0f}% CPU, {each.rss_mb:.0f} MB"
        for each in status.workers[:WORKERS_SHOWN_MAX]
    ]
    hidden = len(status.workers) - WORKERS_SHOWN_MAX
    return Text("   ".join([*shown, *([f"and {hidden} more"] if hidden > 0 else [])]), style="dim")


def _operations(operations: list[OperationFigures]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("operation", no_wrap=True, overflow="ellipsis", vertical="bottom")
    table.add_column("form", no_wrap=True, style="dim", min_width=6)
    rows = [_row(each) for each in operations]
    for at, heading in enumerate(("in/s", "out/s", "λ", "queue", "service\nµs", "p50\nms", "p99\nms"), start=2):
        # Figures are never cut: on a narrow terminal the names give way.
        width = max(5, *map(len, heading.split("\n")), *(len(row[at]) for row in rows))
        table.add_column(heading, justify="right", no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*row)
    return table


def _row(each: OperationFigures) -> tuple[Text | str, ...]:
    name = Text(each.name)
    if each.instances > 1:
        name.append(f" ×{each.instances}", style="dim")
    if not each.records_in:
        queue = human(each.queue_records) if each.queue_records else _NOTHING
        return (name, each.form, *([_NOTHING] * 3), queue, *([_NOTHING] * 3))
    recent = each.in_eps > 0
    return (
        name,
        each.form,
        Text(human(each.in_eps), style="bold"),
        human(each.out_eps),
        measure(each.selectivity),
        Text(human(each.queue_records), style="bold red" if each.queue_records >= QUEUE_HIGH else "none"),
        measure(each.service_us),
        measure(each.p50_ms) if recent else _NOTHING,
        measure(each.p99_ms) if recent else _NOTHING,
    )


def _losses(operations: list[OperationFigures]) -> Text:
    """Records that went aside, if any did."""
    counts = {
        "late": sum(each.late for each in operations),
        "skipped": sum(each.skipped for each in operations),
        "retried": sum(each.retried for each in operations),
        "dead letters": sum(each.dead_letters for each in operations),
    }
    return Text("   ".join(f"{human(count)} {what}" for what, count in counts.items() if count), style="yellow")
