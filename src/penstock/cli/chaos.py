"""`penstock chaos`: runs the pipelines of a file while their workers are killed, and tells what it came to."""

from __future__ import annotations

import secrets
from typing import Annotated

import msgspec
import typer

from penstock.cli.foreground import execute
from penstock.cli.load import load
from penstock.cli.outcome import Exit, JsonOut, told
from penstock.cli.run import CheckpointOption, FileArgument, JsonOption, ParallelismOption, TopOption
from penstock.dashboard.summary import last_lines
from penstock.durations import parse_us
from penstock.runtime.job import Job


def chaos(
    file: FileArgument,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to run.")] = "5m",
    kill_every: Annotated[
        str, typer.Option("--kill-every", metavar="TIME", help="Mean time between kills; moments are random.")
    ] = "20s",
    switch_every: Annotated[
        str | None, typer.Option("--switch-every", metavar="TIME", help="Mean time between random changes of form.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Repeats the choices of an earlier run.")] = None,
    json: JsonOption = None,
    parallelism: ParallelismOption = None,
    checkpoint: CheckpointOption = None,
    top: TopOption = True,
) -> None:
    """Run the pipelines of a file while workers are killed at random, and check that nothing is lost.

    Sends SIGKILL to worker processes of this job, one at a time. Afterwards it tells how soon the job went on each
    time, and how many records were lost, duplicated or reordered on their way; it fails if a single one was, if the
    job did not go on, or if nobody was killed. It can run for hours: memory, open files and threads of the driver
    and of the workers are looked at, and it fails if they grow from the first third of the run to the last.
    """
    from penstock.demo.chaos import Campaign, Killer
    from penstock.demo.soak import Gauge, Switcher

    with told(Exit.REFUSED):
        out = JsonOut(json)
        seconds = parse_us(duration, option="--for") / 1e6
        every_us = parse_us(kill_every, option="--kill-every")
        with out.aside():
            loaded = load(file)
        plan = loaded.plan(parallelism=parallelism, checkpoint=checkpoint)
        Killer.check(plan, every_us)
        switch_us = parse_us(switch_every, option="--switch-every") if switch_every is not None else None
    with told(Exit.FAILED):
        seed = secrets.randbits(32) if seed is None else seed
        typer.echo(f"seed {seed}", err=True)
        campaign, gauge = Campaign(seed, every_us), Gauge()
        kill = Killer(campaign)
        switch = Switcher(plan, seed, switch_us) if switch_us is not None else None

        def meanwhile(job: Job) -> None:
            kill(job)
            gauge(job)
            if switch is not None:
                switch(job)

        with out.aside():
            report = execute(plan, seconds, view=top, meanwhile=meanwhile)
        switches = switch.switches if switch is not None else 0
        found = campaign.findings(report, switches, gauge.holdings.trends())
        out.write({**msgspec.to_builtins(report), "chaos": msgspec.to_builtins(found)})
        typer.echo("\n".join([*found.lines, *last_lines(report)]), err=out.standard)
        if not found.passed:
            typer.echo("FAILED" if found.kills else "FAILED: nobody was killed; run it longer", err=True)
            raise typer.Exit(Exit.FAILED)
