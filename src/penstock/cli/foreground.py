"""Runs a plan in the foreground, with the live view on a terminal and a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from time import monotonic

import typer
from rich.console import Console
from rich.live import Live

from penstock.cli.outcome import Exit
from penstock.control.monitor import Status
from penstock.dashboard.history import History
from penstock.dashboard.summary import progress
from penstock.dashboard.view import Frame, switch_line
from penstock.operators import DEAD_LETTERS
from penstock.pipeline.plan import Plan
from penstock.runtime.attending import attend
from penstock.runtime.interrupts import DRAINING_NOTE, STOPPING_NOTE
from penstock.runtime.job import Job
from penstock.runtime.report import Report, measured_operations
from penstock.runtime.spark import close_session, open_session

FRAME_S = 0.5
LINE_S = 5.0
RUNNING_NOTE = "Ctrl-C drains and ends"


@dataclass(frozen=True)
class Ended:
    """A job that has run in the foreground."""

    report: Report
    interrupted: bool
    """Whether Ctrl-C drained it."""


def execute(plan: Plan, seconds: float | None, *, view: bool, meanwhile: Callable[[Job], None] | None = None) -> Report:
    """Run a plan to its end and return the report; a second Ctrl-C leaves with its exit code instead.

    ``meanwhile`` is called some ten times a second, and once at the end.
    """
    return attended(plan, seconds, view=view, meanwhile=meanwhile).report


def attended(
    plan: Plan,
    seconds: float | None,
    *,
    view: bool,
    meanwhile: Callable[[Job], None] | None = None,
    heading: Callable[[Status], str] | None = None,
) -> Ended:
    """Run a plan as `execute` does, with a line above the live view, and tell whether it was interrupted."""
    console = Console(highlight=False)
    with ExitStack() as stack:
        watch: LiveView | Lines
        if view and console.is_terminal:
            with console.status("starting Spark…"):
                job = stack.enter_context(Job(plan))
            live = stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
            watch = LiveView(job, live, heading)
        else:
            job = stack.enter_context(Job(plan))
            watch = Lines(job)

        def look(interrupts: int) -> None:
            watch(interrupts)
            if meanwhile is not None:
                meanwhile(job)

        report = attend(job, seconds, watch=look)
    if watch.interrupts and not report.began_us:
        raise KeyboardInterrupt
    if watch.interrupts > 1:
        print(f"stopped at once; {report.epochs} epochs had been committed", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED)
    return Ended(report, watch.interrupts > 0)


@contextmanager
def kept_spark(plan: Plan, *, view: bool) -> Iterator[None]:
    """Start Spark once for several jobs."""
    console = Console(highlight=False)
    shown = console.status("starting Spark…") if view and console.is_terminal else nullcontext()
    with shown:
        open_session(
            plan.options.master, max(plan.workers, plan.options.workers_most) + plan.replicas, plan.options.name
        )
    try:
        yield
    finally:
        close_session()


class LiveView:
    """Keeps the live view of a job up to date."""

    def __init__(self, job: Job, live: Live, heading: Callable[[Status], str] | None = None) -> None:
        self.interrupts = 0
        self._job = job
        self._live = live
        self._heading = heading
        self._history = History()
        self._next = 0.0

    def __call__(self, interrupts: int) -> None:
        """Draw a frame if it is time to, or if there was an interrupt."""
        if monotonic() < self._next and interrupts == self.interrupts:
            return
        self.interrupts = interrupts
        self._next = monotonic() + FRAME_S
        note = (RUNNING_NOTE, DRAINING_NOTE, STOPPING_NOTE)[min(interrupts, 2)]
        status = self._job.status()
        self._history.add(status)
        heading = self._heading(status) if self._heading is not None else ""
        self._live.update(Frame(status, note=note, heading=heading, history=self._history), refresh=True)


class Lines:
    """Writes a line on standard error now and then, for logs and pipes."""

    def __init__(self, job: Job) -> None:
        self.interrupts = 0
        self._job = job
        self._next = monotonic() + LINE_S
        self._look = 0.0
        self._switches = 0
        units = job.plan.units
        self._sources = {unit.name for unit in units if unit.source is not None}
        self._sinks = {op.name for unit in units for op in unit.ops if op.sink is not None} - {DEAD_LETTERS}
        self._measured = measured_operations(job.plan)

    def __call__(self, interrupts: int) -> None:
        """Write if it is time to, or if there was an interrupt."""
        if interrupts > self.interrupts:
            self.interrupts = interrupts
            self._write(DRAINING_NOTE if interrupts == 1 else STOPPING_NOTE)
        if monotonic() < self._look:
            return
        self._look = monotonic() + FRAME_S
        status = self._job.status()
        new = status.switches_total - self._switches
        self._switches = status.switches_total
        for each in (status.advice if status.advise else status.switches)[-new:] if new else []:
            self._write(f"{each.at_s:.1f}s  {switch_line(each).plain}: {each.reason}")
        if monotonic() >= self._next:
            self._next = monotonic() + LINE_S
            self._write(progress(status, self._sources, self._sinks, self._measured))

    def _write(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
