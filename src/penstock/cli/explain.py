"""`penstock explain`: shows what a file's pipelines would run as, without starting anything."""

from __future__ import annotations

import shutil

import typer

from penstock.cli.load import load
from penstock.cli.outcome import Exit, told
from penstock.cli.run import FileArgument, ParallelismOption
from penstock.pipeline.explain import explain_plan

WIDTH_MAX = 120


def explain(file: FileArgument, parallelism: ParallelismOption = None) -> None:
    """Show a file's graph: schemas, partitioning, what runs where, and the forms of every operation."""
    with told(Exit.REFUSED):
        plan = load(file).plan(parallelism=parallelism)
        width = min(shutil.get_terminal_size((100, 40)).columns, WIDTH_MAX)
        typer.echo(explain_plan(plan, width))
