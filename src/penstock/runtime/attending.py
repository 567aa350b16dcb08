"""Waits for a job in the foreground; `penstock.run` and the commands call it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from penstock.runtime.interrupts import Acknowledge, taken_interrupts

if TYPE_CHECKING:
    from penstock.runtime.job import Job
    from penstock.runtime.report import Report


def attend(job: Job, seconds: float | None = None, *, watch: Callable[[int], None] | None = None) -> Report:
    """Wait for a job in the foreground: drain it after ``seconds`` of running or on Ctrl-C, stop it on a second one.

    ``watch`` is called some ten times a second with the number of interrupts so far; by default they are
    acknowledged on standard error.
    """
    watch = watch or Acknowledge()
    for each in job.metrics:
        kind, _, address = each.outlet.partition(":")
        if kind == "prometheus":  # port 0 took a free one: only now it is known which
            print(f"metrics at http://{address}/metrics", file=sys.stderr, flush=True)
    drain_at: float | None = None
    with taken_interrupts(job.drain, job.stop) as interrupts:
        while (report := job.wait(0.1)) is None:
            watch(len(interrupts))
            if seconds is not None and drain_at is None and job.began_us:
                drain_at = monotonic() + seconds
            if drain_at is not None and monotonic() >= drain_at:
                job.drain()
                drain_at = float("inf")
        watch(len(interrupts))
    return report
