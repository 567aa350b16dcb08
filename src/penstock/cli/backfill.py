"""`penstock backfill`: runs the pipelines of a file over history, as Spark batch jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.load import load
from penstock.cli.outcome import Exit, told
from penstock.cli.run import FileArgument, ParallelismOption, PyFilesOption, shipped
from penstock.errors import InvalidOption, SparkFailed
from penstock.pipeline.options import Options
from penstock.runtime.bootstrap import bootstrap as bootstrapped
from penstock.runtime.java import check_java
from penstock.runtime.shipping import ship
from penstock.runtime.spark import short_error
from penstock.spark.backfill import backfill as compiled


def backfill(
    file: FileArgument,
    given: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=PATH", help="Files in place of a source or operation; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help="Write Parquet files here, a directory for each sink."),
    ] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark master. Default: all cores here.")] = None,
    plan: Annotated[bool, typer.Option("--explain", help="Show Spark's plans; run nothing.")] = False,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="DIR", help="Write the state for 'penstock run --bootstrap DIR'."),
    ] = None,
    until: Annotated[
        list[str] | None,
        typer.Option("--until", metavar="NAME=CUT", help="With --state: cut a source at 0:1200,1:900 or a time."),
    ] = None,
    parallelism: ParallelismOption = None,
    py_files: PyFilesOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in the output directory.")] = False,
) -> None:
    """Run the pipelines of a file over history, as Spark batch jobs: no workers, no checkpoint, any size.

    Sources that have data of their own, such as files, are read where no --input is given for them. Without --output,
    the first rows of every sink are shown.
    """
    with told(Exit.REFUSED):
        inputs = read_inputs(given or [])
        sent = shipped(py_files, None)
        loaded = load(file)
        if output is not None and output.exists() and any(output.iterdir()) and not overwrite:
            raise InvalidOption(option="--output", given=str(output), allowed="an empty directory, or --overwrite")
        check_java()
        session = _session(master, Options.of(py_files=sent.get("py_files", ()))) if master is not None else None
        if state is None:
            if until:
                raise InvalidOption(option="--until", given=until[0], allowed="together with --state")
            frames = compiled(loaded.pipelines, inputs, spark=session)
        else:
            cuts = read_cuts(until or [])
            frames = bootstrapped(
                loaded.pipelines, inputs, to=state, until=cuts, parallelism=parallelism, spark=session
            )
            typer.echo(f"state: {state}")
    with told(Exit.FAILED):
        for name, frame in frames.items():
            if plan:
                typer.echo(f"{name}:")
                frame.explain()
                continue
            try:
                if output is None:
                    typer.echo(f"{name}:")
                    frame.show(truncate=False)
                else:
                    frame.write.mode("overwrite" if overwrite else "error").parquet(str(output / name))
                    typer.echo(f"{name}: {output / name}")
            except Exception as error:
                raise SparkFailed(f"the backfill of '{name}' failed: {short_error(error)}.") from None


def read_cuts(given: list[str]) -> dict[str, object]:
    """Read what `--until` was given: offsets by partition, or a time, by source."""
    cuts: dict[str, object] = {}
    for each in given:
        name, equals, where = each.partition("=")
        if not (name and equals and where):
            allowed = "NAME=PARTITION:OFFSET,… or NAME=TIME, as in ads=0:1200,1:900"
            raise InvalidOption(option="--until", given=each, allowed=allowed)
        pairs = [pair.partition(":") for pair in where.split(",")]
        is_offsets = all(one.isdigit() and other.isdigit() for one, _, other in pairs)
        cuts[name] = {int(one): int(other) for one, _, other in pairs} if is_offsets else where
    return cuts


def _session(master: str, sent: Options) -> object:
    from penstock.spark.sessions import new_session

    session = new_session(master or "local[*]")
    ship(session, sent)
    return session


def read_inputs(given: list[str]) -> dict[str, str]:
    """Read what `--input` was given: paths by source or operation."""
    inputs: dict[str, str] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not (name and equals and path):
            raise InvalidOption(
                option="--input", given=each, allowed="NAME=PATH, as in ad-events=history/*.parquet, with quotes"
            )
        if name in inputs:
            raise InvalidOption(option="--input", given=each, allowed=f"one path for '{name}'")
        inputs[name] = path
    return inputs
