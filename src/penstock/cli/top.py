"""`penstock top`: the live view of a job that runs elsewhere on this machine."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.outcome import Exit, told
from penstock.dashboard.top import follow, show_once
from penstock.runtime.status import find_job


def top(
    job: Annotated[
        str | None, typer.Argument(help="Name of the job. Default: the one started or heard of last.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
) -> None:
    """Watch a running job: rates, λ, queues, service times and latencies of every operation. q leaves."""
    console = Console(highlight=False)
    with told(Exit.FAILED):
        path = find_job(job)
        try:
            left = show_once(path, console) if once or not console.is_terminal else follow(path, console)
        except KeyboardInterrupt:
            return
        if not left:
            typer.echo("the job has ended")
