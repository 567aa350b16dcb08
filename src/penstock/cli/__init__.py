"""The command line: `penstock run`, `demo`, `chaos`, `top`, `explain`, `bench`: a module for each; here they meet."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.bench import app as bench
from penstock.cli.chaos import chaos
from penstock.cli.demo import demo
from penstock.cli.explain import explain
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
for command in (run, demo, chaos, top, explain):
    app.command()(command)
app.add_typer(bench)


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
    """Entry point of the `penstock` program."""
    app()
