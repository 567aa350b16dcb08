"""`penstock demo`: the Yahoo ad pipeline live on an embedded Spark, its result checked to the last event."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from penstock.cli.foreground import execute
from penstock.cli.outcome import Exit, JsonOut, told
from penstock.cli.run import JsonOption, ParallelismOption, TopOption
from penstock.dashboard.summary import last_lines
from penstock.durations import parse_us


def demo(
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to run.")] = "20s",
    rate: Annotated[float, typer.Option(metavar="N", help="Events per second.")] = 20_000,
    json: JsonOption = None,
    parallelism: ParallelismOption = None,
    top: TopOption = True,
) -> None:
    """Run the Yahoo ad pipeline live and check its result exactly.

    Views of ads are counted for each campaign in windows of ten seconds of event time. At the end the input is made
    again and counted without Penstock; the command fails if a single event is missing or counted twice.
    """
    from penstock.bench.demo import Demo

    with told(Exit.REFUSED):
        out = JsonOut(json)
        seconds = parse_us(duration, option="--for") / 1e6
        shown = Demo(rate)
        plan = shown.plan(parallelism)
    with told(Exit.FAILED):
        report = execute(plan, seconds, view=top)
        typer.echo("counting the input again…", err=True)
        verified, found = shown.verify(report)
        out.write({**msgspec.to_builtins(verified), "verified": msgspec.to_builtins(found)})
        typer.echo("\n".join([found.sentence, *last_lines(verified)]))
        if not found.exact:
            raise typer.Exit(Exit.FAILED)
