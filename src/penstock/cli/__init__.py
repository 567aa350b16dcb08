"""The command line: `penstock run`, `backfill`, `demo`, `top`, `explain` and more: a module for each; here they meet.

Other packages add commands through the entry points of the group ``penstock.commands``; `penstock bench` is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer

from penstock.cli.backfill import backfill
from penstock.cli.chaos import chaos
from penstock.cli.commands import replicate, scale, stop, switch, use
from penstock.cli.demo import demo
from penstock.cli.explain import explain
from penstock.cli.new import new
from penstock.cli.outcome import Exit
from penstock.cli.pack import pack
from penstock.cli.run import run
from penstock.cli.top import top

app = typer.Typer(
    name="penstock",
    help="A Python stream processor on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# A line each, short enough for the list of a terminal of 80 columns.
COMMANDS: dict[Callable[..., None], str] = {
    run: "Run the pipelines of a file.",
    backfill: "Run the pipelines of a file over history, in Spark.",
    demo: "See a pipeline change form in a burst; a table, a picture.",
    chaos: "Run the pipelines of a file while workers are killed.",
    top: "Watch a running job.",
    use: "Have an operation of a running job use another alternative.",
    switch: "Settle the form of operations of a running job.",
    scale: "Run a running job on more workers or fewer.",
    replicate: "Settle how many processes compute an operation.",
    stop: "End a running job; it commits what it has.",
    explain: "Show what a file would run, and how; starts nothing.",
    pack: "Pack this Python and its packages for a cluster.",
    new: "Begin a package of your own: a connector, with its tests.",
}
for command, line in COMMANDS.items():
    app.command(short_help=line)(command)


def add_plugins(app: typer.Typer, plugins: Iterable[EntryPoint]) -> None:
    """Add the commands of other packages, and in place of `bench` where it is not installed a word on how to."""
    found = {each.name: each for each in plugins}
    for each in found.values():
        app.add_typer(each.load())
    if "bench" not in found:
        # Whatever is asked of it, help included, has the same answer.
        anything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        app.command(short_help="Benchmarks: pip install penstock-bench.", context_settings=anything)(bench)


def bench() -> None:
    """Say how the benchmarks are installed."""
    typer.echo("penstock bench is a package of its own; install it with: pip install penstock-bench", err=True)
    raise typer.Exit(Exit.REFUSED)


add_plugins(app, entry_points(group="penstock.commands"))


def _version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version  # its callback has acted on it


def main() -> None:
    """Run the command line."""
    app()
