"""`penstock bench`: commands on workload files and measurements; the functions here only read options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.outcome import Exit, told

app = typer.Typer(
    name="bench",
    help="Workloads written as files: check them, run them, compare engines.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

WorkloadArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A workload file, JSON or YAML.")]


@app.callback()
def _bench() -> None:
    """Keep `check` a command of its own while it is the only one."""


@app.command()
def check(file: WorkloadArgument) -> None:
    """Say what a workload file describes, or what is wrong with it; starts nothing.

    Prints sources, transformations and sinks with the rates to expect at each. Errors name the field by its path, and
    the nearest word that is allowed there. The probability p of a filter is that of dropping a message.
    """
    from penstock.bench.files import describe, load

    with told(Exit.REFUSED):
        typer.echo("\n".join(describe(load(file))))
