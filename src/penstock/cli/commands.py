"""`penstock use`, `switch`, `scale`, `replicate` and `stop`: commands to a job that runs elsewhere on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.outcome import Exit, told
from penstock.protocol.commands import Command, ReplicateOperation, ScaleJob, StopJob, SwitchForm, UseAlternative
from penstock.runtime.commands import send
from penstock.runtime.status import find_job

_Job = Annotated[str, typer.Argument(help="Name of the job, as penstock top shows it.")]


def use(
    job: _Job,
    operation: Annotated[str, typer.Argument(help="Name of an operation that has alternatives.")],
    alternative: Annotated[str, typer.Argument(help="Name of the alternative, or auto: the job chooses.")],
) -> None:
    """Have an operation of a running job use another of its alternatives; nothing is lost, doubled or reordered."""
    _send(job, UseAlternative(operation, alternative))


def switch(
    job: _Job,
    operations: Annotated[list[str], typer.Argument(help="Operations, next to each other, and then the form.")],
) -> None:
    """Settle the form of operations of a running job: record, batch, or auto for the job to choose."""
    *names, to = operations
    with told(Exit.FAILED):
        if not names:
            raise typer.BadParameter("name an operation, then record, batch or auto")
        _send(job, SwitchForm(names, to))


def scale(
    job: _Job,
    workers: Annotated[str, typer.Argument(help="How many; at most the job's parallelism. auto: the job chooses.")],
) -> None:
    """Run a running job on more workers or fewer: instances move with their state, one after the other."""
    _send(job, ScaleJob(int(workers) if workers.isdecimal() else workers))


def replicate(
    job: _Job,
    operation: Annotated[str, typer.Argument(help="Name of an operation that has replicas=.")],
    replicas: Annotated[str, typer.Argument(help="How many processes; 1: each worker itself. auto: the job chooses.")],
) -> None:
    """Have so many processes compute an operation of a running job; its records stay in order.

    The number holds for this run, until another one is given: penstock replicate images classify 4. With auto in its
    place the job chooses again, by the load.
    """
    _send(job, ReplicateOperation(operation, int(replicas) if replicas.isdecimal() else replicas))


def stop(
    job: _Job,
    now: Annotated[bool, typer.Option("--now", help="End at once; what is not committed stays invisible.")] = False,
) -> None:
    """End a running job: it stops reading, finishes what is under way, and commits it."""
    _send(job, StopJob(now))


def _send(job: str, command: Command) -> None:
    with told(Exit.FAILED):
        typer.echo(send(find_job(job), job, command))
