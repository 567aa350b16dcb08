"""`penstock pack`: an archive of this Python and its packages, for the executors of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.outcome import Exit, told
from penstock.errors import InvalidOption
from penstock.runtime.packing import pack_environment


def pack(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The archive, a .tar.gz file.")] = Path(
        "environment.tar.gz"
    ),
    only: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Pack these packages and what they need, Penstock included; default: all."),
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option("--requirements", "-r", metavar="FILE", help="Install and pack these instead.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an archive that is there.")] = False,
) -> None:
    """Pack this Python and its packages into an archive, which 'penstock run --environment' sends to a cluster.

    The machines of the cluster need no Python then; they need this one's operating system and processor.
    """
    with told(Exit.FAILED):
        if output.exists() and not overwrite:
            raise InvalidOption(option="--output", given=str(output), allowed="a new file, or --overwrite")
        names = [each.strip() for each in (only or "").split(",") if each.strip()]
        chosen = [*names, "penstock"] if names else []
        size = pack_environment(output, only=chosen, requirements=requirements)
        typer.echo(f"{output}: {size / 1e6:.0f} MB; penstock run FILE.py --master … --environment {output}")
