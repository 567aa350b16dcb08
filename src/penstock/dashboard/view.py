"""One frame of the live view as a function of a job's status; `penstock top`, `run` and `demo` all show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from penstock.control.changes import Advice, ChangeReport
from penstock.control.exchanges import AlternativesView
from penstock.control.monitor import OperationFigures, Status
from penstock.control.replicas import ReplicasView
from penstock.control.rescaling import MoveReport
from penstock.control.scheduler import Phase
from penstock.control.shifting import ShiftReport
from penstock.control.staffing import StaffingView
from penstock.dashboard.history import History, blocks
from penstock.dashboard.numbers import human, measure, span
from penstock.operators import Form

QUIET_S = 3.0
"""A status older than this is shown with its age."""
QUEUE_HIGH = 10_000
"""From here on a queue stands out."""
WORKERS_SHOWN_MAX = 8
HOT_SHOWN_MAX = 2
SWITCHES_SHOWN_MAX = 3
MOVES_SHOWN_MAX = 4
"""Of moves and shifts together."""
COURSES_SHOWN_MAX = 4
"""Ranges whose replicas are drawn over time, and instances whose workers are."""
LABEL_MAX = 18
NAME_MIN = 12
"""Names of operations are cut to this on a narrow terminal; after that, figures are left out."""
WIDE = 100
"""From so many columns on every operation shows where its latency comes from."""
AIRY = 120
"""From so many columns on there is more space between these figures."""
COMPONENTS = {"out": "out", "wait": "wait", "schedule": "sched", "process": "proc", "transmit": "trans"}
_GIVE_WAY = ("λ", "service\nµs", "out/s", "p50\nms")
"""Figures of operations, as they are left out where there is no room: none is ever cut."""
_NOTHING = "·"
_PHASE_STYLES = {
    Phase.STARTING.value: "yellow",
    Phase.RUNNING.value: "green",
    Phase.DRAINING.value: "yellow",
    Phase.ENDING.value: "yellow",
    Phase.ENDED.value: "dim",
    Phase.FAILED.value: "red",
}
_FORM_STYLES = {Form.RECORD.value: "cyan", Form.BATCH.value: "bold magenta"}
_WORKER_STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red")
_ARROWS = {Form.RECORD.value: "↓", Form.BATCH.value: "↑"}


@dataclass(frozen=True)
class Frame:
    """A status, drawn as wide as there is room.

    Attributes
    ----------
    status : Status
        The job at one moment.
    note : str
        Last line: what the user can do, or what was asked for.
    age_s : float
        How old the status is.
    heading : str
        First line: what is going on, as the caller knows it.
    history : History, optional
        The course of the job so far.
    """

    status: Status
    note: str = ""
    age_s: float = 0.0
    heading: str = ""
    history: History | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the frame."""
        del console
        status, width = self.status, options.max_width
        parts: list[RenderableType] = [Text(self.heading, style="bold")] if self.heading else []
        parts += [_header(status, self.age_s), _workers(status, width)]
        parts += [line for line in (_staffing(status.staffing),) if line.plain]
        parts += [Text(f"waits for {each}", style="yellow") for each in status.waiting]
        parts.append(_operations(status.operations, width))
        parts += [_alternatives(name, each) for name, each in status.alternatives.items()]
        parts += [_replicas(each) for each in status.replicas]
        lines = [_components(status), _losses(status.operations)]
        parts += [line for line in lines if line.plain]
        if self.history is not None and self.history.rate_eps:
            parts += [Text(), _courses(self.history, status, width)]
        if status.switches or status.advice or status.switch_note:
            parts += [Text(), _switches(status)]
        if status.moves or (status.staffing is not None and status.staffing.shifts):
            parts += [Text(), _moves(status)]
        parts += [Text(each, style="dim") for each in status.actions]
        if self.note:
            parts.append(Text(self.note, style="dim"))
        yield Group(*parts)


def _header(status: Status, age_s: float) -> Text:
    style = _PHASE_STYLES.get(status.phase, "red")
    text = Text.assemble(("penstock ", "bold"), (status.job, "bold cyan"), "   ", ("● ", style), (status.phase, style))
    text.append(f"   up {span(status.uptime_s)}   epoch {status.epoch}")
    if status.epoch_ms:
        text.append(f" ({measure(status.epoch_ms)} ms)")
    if age_s >= QUIET_S:
        text.append(f"   no news for {span(age_s)}", style="bold red")
    return text


def _workers(status: Status, width: int) -> Text:
    if not status.workers:
        return Text("waiting for the workers", style="dim")
    even = sorted(status.placement) == [each.worker for each in status.workers]
    shown = [
        f"worker {each.worker}{_columns(status, each.worker, even=even)}: "
        f"{each.cpu_cores * 100:.0f}% CPU, {each.rss_mb:.0f} MB"
        for each in status.workers[:WORKERS_SHOWN_MAX]
    ]
    hidden = len(status.workers) - WORKERS_SHOWN_MAX
    if hidden > 0:
        shown.append(f"and {hidden} more")
    if status.slots:
        overhead = f", {status.overhead * 100:.0f}% scheduling" if status.overhead is not None else ""
        shown.append(
            f"{len(status.slots)} slot{'s' * (len(status.slots) != 1)}, groups of {status.group_size}{overhead}"
        )
    if status.replica_pids:
        active = len({number for each in status.replicas for number in each.replicas})
        saved = f", {status.saved:.0%} saved so far" if status.saved is not None else ""
        shown.append(f"{len(status.replica_pids)} replicas, {active} active{saved}")
    return Text("\n".join(_filled(shown, width)), style="dim")


def _filled(parts: Sequence[str], width: int) -> list[str]:
    """Put parts side by side into lines, none of them across the end of one."""
    lines: list[str] = []
    for each in parts:
        if lines and len(lines[-1]) + 3 + len(each) <= width:
            lines[-1] += f"   {each}"
        else:
            lines.append(each)
    return lines


def _staffing(found: StaffingView | None) -> Text:
    """How many workers there are to be, by whose word and why, where that is not settled once and for all."""
    text = Text()
    if found is None:
        return text
    if found.least != found.most:
        text.append(f"{found.present} of {found.least} to {found.most} workers", style="bold")
        text.append("   settled by the user" if found.pinned else "", style="dim")
        text.append(f"   {found.wanted} wanted" if found.wanted != found.present else "", style="yellow")
        if found.utilisation:
            text.append(f"   busy {' '.join(f'{used:.0%}' for used in found.utilisation.values())}")
        text.append(f"   {found.reason}" if found.reason else "", style="dim")
    for note in [found.note, *map(str, found.hot[:HOT_SHOWN_MAX])]:
        text.append(f"{'   ' * bool(text.plain)}{note}" if note else "", style="yellow")
    return text


def _columns(status: Status, worker: int, *, even: bool) -> str:
    """Which instances a worker has, where it is not one for each."""
    if even or not status.placement:
        return ""
    own = [str(i) for i, each in enumerate(status.placement) if each == worker]
    return f" (instance{'s' * (len(own) > 1)} {', '.join(own)})" if own else " (no instance)"


def _moves(status: Status) -> Table:
    """The last moves of instances and shifts of key groups, newest first: what has gone where, and what it cost."""
    shifts = status.staffing.shifts if status.staffing is not None else []
    known: list[MoveReport | ShiftReport] = [*status.moves, *shifts]
    shown = sorted(known, key=lambda each: each.at_s)[-MOVES_SHOWN_MAX:]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for each in reversed(shown):
        grid.add_row(Text(f"{each.at_s:.1f}s", style="bold"), move_line(each))
    if (hidden := status.moves_total + len(shifts) - len(shown)) > 0:
        grid.add_row("", Text(f"and {hidden} moves before", style="dim"))
    return grid


def move_line(done: MoveReport | ShiftReport) -> Text:
    """A move or a shift in one line."""
    if isinstance(done, MoveReport):
        text = Text(f"instance {done.column}: worker {done.old} → {done.new}")
    else:
        groups = f"{done.groups} key group{'s' * (done.groups != 1)} of {done.operation}"
        text = Text(f"{groups}: instance {done.old} → {done.new}")
    cost = f"pause {measure(done.pause_ms)} ms, total {measure(done.total_ms)} ms"
    return text.append(f"   {cost}, {human(done.loaded_bytes)} bytes loaded ahead", style="dim")


def _operations(operations: list[OperationFigures], width: int) -> Table:
    wide = width >= WIDE
    padding = 0 if wide and width < AIRY else 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, padding), collapse_padding=True)
    headings = ["in/s", "out/s", "λ", "queue", "service\nµs", "p50\nms", "p99\nms"]
    rows = [_row(each) for each in operations]
    if wide:
        headings += [f"{name}\nms" for name in COMPONENTS.values()]
        rows = [(*row, *_component_cells(each)) for row, each in zip(rows, operations, strict=True)]
    gap, form = 1 + padding, max(6, *(len(row[1]) for row in rows)) if rows else 6
    while True:
        least = [_least(heading, [row[at] for row in rows]) for at, heading in enumerate(headings, start=2)]
        room = width - 1 - form - sum(least) - gap * (len(least) + 2)
        left_out = next((each for each in _GIVE_WAY if each in headings), None)
        if room >= NAME_MIN or left_out is None:
            break
        at = headings.index(left_out)
        del headings[at]
        rows = [(*row[: at + 2], *row[at + 3 :]) for row in rows]
    table.add_column("operation", no_wrap=True, overflow="ellipsis", vertical="bottom", max_width=max(1, room))
    table.add_column("form", no_wrap=True, min_width=form)
    for heading, least_width in zip(headings, least, strict=True):
        table.add_column(heading, justify="right", no_wrap=True, min_width=least_width)
    for row in rows:
        table.add_row(*row)
    return table


def _least(heading: str, cells: Sequence[Text | str]) -> int:
    return max(5, *map(len, heading.split("\n")), *map(len, cells))


def _row(each: OperationFigures) -> tuple[Text | str, ...]:
    name = Text(each.name)
    if each.instances > 1:
        name.append(f" ×{each.instances}", style="dim")
    form = Text(each.form, style=_FORM_STYLES.get(each.form, "none"))
    if not each.records_in:
        queue = human(each.queue_records) if each.queue_records else _NOTHING
        return (name, form, *([_NOTHING] * 3), queue, *([_NOTHING] * 3))
    recent = each.in_eps > 0 and each.p99_ms > 0
    return (
        name,
        form,
        Text(human(each.in_eps), style="bold"),
        human(each.out_eps),
        measure(each.selectivity),
        Text(human(each.queue_records), style="bold red" if each.queue_records >= QUEUE_HIGH else "none"),
        measure(each.service_us),
        measure(each.p50_ms) if recent else _NOTHING,
        measure(each.p99_ms) if recent else _NOTHING,
    )


def _component_cells(each: OperationFigures) -> list[Text]:
    """Where a record's time goes at this operation; what is nothing stays in the background."""
    found = each.components_us
    return [
        Text(measure(found[name] / 1000), style="none") if found[name] >= 1.0 else Text(_NOTHING, style="dim")
        for name in COMPONENTS
    ]


def _alternatives(name: str, found: AlternativesView) -> Text:
    """The alternatives of an operation: the active one stands out; what each costs; which ones have failed."""
    text = Text.assemble((name, "bold"), " uses ")
    for at, each in enumerate(found.names):
        cost = f" {measure(found.costs_us[each])} µs" if each in found.costs_us else ""
        style = "bold green" if each == found.active else "red" if each in found.out else "dim"
        text.append(f"{' · ' if at else ''}{'● ' if each == found.active else ''}{each}{cost}", style=style)
    if found.wanted != found.active:
        text.append(f"   {found.wanted} is to take over", style="yellow")
    for each, why in found.out.items():
        text.append(f"   {each} has failed: {why}", style="red")
    return text.append("   settled by the user" if found.pinned else "", style="dim")


def _replicas(found: ReplicasView) -> Text:
    """Who computes a range, how busy they are, and what a record costs there."""
    who = f"{found.degree} replicas" if found.degree else "the workers themselves"
    text = Text.assemble((", ".join(found.operations), "bold"), " by ", (who, "bold green" if found.degree else "dim"))
    if found.wanted != max(1, found.degree):
        text.append(f"   {found.wanted} wanted", style="yellow")
    if found.utilisation:
        busy = " ".join(f"{100 * used:.0f}%" for used in found.utilisation.values())
        text.append(f"   {human(found.service_eps)}/s   busy {busy}   {measure(found.record_us / 1e3)} ms a record, ")
        text.append(f"{measure(found.cpu_us / 1e3)} ms of it computing")
    text.append(f"   {found.activations} activations", style="dim")
    text.append("   settled by the user" if found.pinned else "", style="dim")
    return text.append(f"   {found.advice}" if found.advice else "", style="yellow")


def can_be_done(status: Status) -> str:
    """The commands that this job takes from another terminal."""
    job = status.job
    found = [f"penstock stop {job}", f"penstock switch {job} OPERATION batch|record|auto"]
    if len(status.placement) > 1:
        found.append(f"penstock scale {job} 1…{len(status.placement)}|auto")
    for at in status.replicas:
        if at.asked and at.least < at.most:
            found.append(f"penstock replicate {job} {at.operations[0]} {at.least}…{at.most}|auto")
    for name, each in status.alternatives.items():
        found.append(f"penstock use {job} {name} {'|'.join([*each.names, 'auto'])}")
    return "\n".join(found)


def _components(status: Status) -> Text:
    """The mean latency of the whole way, and what it is made of."""
    found = status.components_ms
    total = sum(found.values())
    if total <= 0:
        return Text()
    parts = " + ".join(f"{name} {measure(found.get(name, 0.0))}" for name in COMPONENTS)
    return Text.assemble(("latency ", "bold"), (f"{measure(total)} ms", "bold"), f" = {parts}")


def _courses(history: History, status: Status, width: int) -> Table:
    """What has been of late: load, latency, and what the job has had for it, over time."""
    drawn: list[tuple[str, Sequence[float], str, str]] = [
        ("rate", history.rate_eps, "/s", "green"),
        ("queue", history.queue_records, "", "red"),
        ("p99", history.p99_ms, " ms", "yellow"),
    ]
    staffing = status.staffing
    if len(set(history.workers)) > 1 or (staffing is not None and staffing.least != staffing.most):
        drawn.append(("workers", history.workers, "", "cyan"))
    degrees = list(history.degrees().items())[:COURSES_SHOWN_MAX]
    drawn += [(_label(f"replicas {name}"), values, "", "magenta") for name, values in degrees]
    moved = list(history.moved().items())
    rows = [(name, f"{human(values[-1])}{unit}", f"max {human(max(values))}{unit}") for name, values, unit, _ in drawn]
    rows += [(f"instance {number}", f"on {owners[-1]}", "worker") for number, owners in moved]
    room = max(6, width - sum(max(len(row[at]) for row in rows) for at in range(3)) - 6)
    lines = [Text(blocks(values, room), style=style) for _, values, _, style in drawn]
    # Of those that have moved in what is shown, the last ones.
    seen = [(row, owners[-room:]) for row, (_, owners) in zip(rows[len(drawn) :], moved, strict=True)]
    seen = [each for each in seen if len(set(each[1])) > 1][-COURSES_SHOWN_MAX:]
    rows = rows[: len(drawn)] + [row for row, _ in seen]
    lines += [_owners(owners) for _, owners in seen]
    grid = Table.grid(padding=(0, 2))
    for (name, now, highest), line in zip(rows, lines, strict=True):
        grid.add_row(name, Text(now, justify="right"), line, Text(highest, "dim"))
    return grid


def _label(name: str) -> str:
    return name if len(name) <= LABEL_MAX else f"{name[: LABEL_MAX - 1]}…"


def _owners(workers: Sequence[int]) -> Text:
    """The worker that an instance was on, a digit for each point; each worker has a colour."""
    text = Text()
    for worker in workers:
        text.append(str(worker % 10), style=_WORKER_STYLES[worker % len(_WORKER_STYLES)])
    return text


def _switches(status: Status) -> Table:
    """The last switches, newest first, each with the figures that it was decided on."""
    shown: Sequence[ChangeReport | Advice] = (status.advice if status.advise else status.switches)[-SWITCHES_SHOWN_MAX:]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for each in reversed(shown):
        grid.add_row(Text(f"{each.at_s:.1f}s", style="bold"), switch_line(each))
        grid.add_row("", Text(each.reason, style="dim"))
    hidden = status.switches_total - len(shown)
    if hidden > 0:
        grid.add_row("", Text(f"and {hidden} before", style="dim"))
    if status.switch_note:
        grid.add_row("note", Text(status.switch_note, style="yellow dim"))
    return grid


def switch_line(switch: ChangeReport | Advice) -> Text:
    """A switch in one line: where to, which operations, and what it cost if it was made."""
    style = _FORM_STYLES.get(switch.to, "none")
    text = Text.assemble((f"{_ARROWS.get(switch.to, '→')} {switch.to}", style), f"  {', '.join(switch.operations)}")
    if isinstance(switch, Advice):
        return text.append("   advised, not done", style="dim")
    return text.append(
        f"   pause {measure(switch.pause_ms)} ms, total {measure(switch.total_ms)} ms, "
        f"{human(switch.carried_records)} carried over",
        style="dim",
    )


def _losses(operations: list[OperationFigures]) -> Text:
    """Records that went aside, if any did, and batches that had to go the slow way."""
    counts = {
        "late": sum(each.late for each in operations),
        "skipped": sum(each.skipped for each in operations),
        "retried": sum(each.retried for each in operations),
        "dead letters": sum(each.dead_letters for each in operations),
        "timed out": sum(each.timed_out for each in operations),
        "over the queue bound": sum(each.over_bound for each in operations),
        "batches fell back to the loop": sum(each.fallbacks for each in operations),
    }
    return Text("   ".join(f"{human(count)} {what}" for what, count in counts.items() if count), style="yellow")
