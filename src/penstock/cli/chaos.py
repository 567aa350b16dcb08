"""`penstock chaos`: runs pipelines while their workers are killed, come and go, and tells what it came to."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.foreground import execute
from penstock.cli.load import Loaded, load
from penstock.cli.outcome import Exit, JsonOut, told
from penstock.cli.run import CheckpointOption, JsonOption, ParallelismOption, TopOption
from penstock.dashboard.summary import last_lines
from penstock.durations import parse_us
from penstock.runtime.job import Job

if TYPE_CHECKING:
    from penstock.demo.chaos import Findings

OWN = {"name": "chaos", "parallelism": 3, "epoch": "500ms"}
"""Options of the pipeline that the command brings along."""
ChaosArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE.py]", help="A Python file with one or more pipelines. Without it: one whose output is known."
    ),
]
KillOption = Annotated[
    str, typer.Option("--kill-every", metavar="TIME", help="Mean time between kills; moments are random.")
]
SwitchOption = Annotated[
    str | None, typer.Option("--switch-every", metavar="TIME", help="Mean time between random changes of form.")
]
ScaleOption = Annotated[
    str | None,
    typer.Option("--scale-every", metavar="TIME", help="Mean time between random numbers of workers or replicas."),
]


def chaos(
    file: ChaosArgument = None,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to run.")] = "5m",
    kill_every: KillOption = "20s",
    switch_every: SwitchOption = None,
    scale_every: ScaleOption = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Repeats the choices of an earlier run.")] = None,
    json: JsonOption = None,
    parallelism: ParallelismOption = None,
    checkpoint: CheckpointOption = None,
    top: TopOption = True,
) -> None:
    """Run pipelines while workers are killed at random, and check that nothing is lost.

    Sends SIGKILL to worker processes of this job, one at a time. Afterwards it tells how soon the job went on each
    time, and how many records were lost, duplicated or reordered on their way; it fails if a single one was, if the
    job did not go on, or if there were fewer faults than so long a run must have. Without a file it runs a pipeline of
    its own, of which every record is known, and compares the files that it has written with what must be in them. It
    can run for hours: memory, open files and threads of the driver and of the workers are looked at, and it fails if
    they grow from the first third of the run to the last.
    """
    from penstock.demo.chaos import Campaign, Killer, at_least
    from penstock.demo.oracle import judge
    from penstock.demo.soak import Gauge, Rescales, Scaler, Switcher

    with told(Exit.REFUSED):
        out = JsonOut(json)
        seconds = parse_us(duration, option="--for") / 1e6
        every_us = {"kills": parse_us(kill_every, option="--kill-every")}
        with out.aside():
            written, loaded = (None, load(file)) if file is not None else _own()
        plan = loaded.plan(parallelism=parallelism, checkpoint=checkpoint)
        Killer.check(plan, every_us["kills"])
        seed = secrets.randbits(32) if seed is None else seed
        campaign, gauge = Campaign(seed, every_us["kills"]), Gauge()
        doing: list[Callable[[Job], None]] = [Killer(campaign), gauge]
        switch = rescales = None
        if switch_every is not None:
            every_us["switches"] = parse_us(switch_every, option="--switch-every")
            switch = Switcher(plan, seed, every_us["switches"])
            doing.append(switch)
        if scale_every is not None:
            every_us["rescales"] = parse_us(scale_every, option="--scale-every")
            rescales = Rescales(plan, seed, every_us["rescales"])
            Scaler.check(rescales, every_us["rescales"])
            doing.append(Scaler(rescales))
    with told(Exit.FAILED):
        typer.echo(f"seed {seed}", err=True)

        def meanwhile(job: Job) -> None:
            for each in doing:
                each(job)

        with out.aside():
            report = execute(plan, seconds, view=top, meanwhile=meanwhile)
        found = campaign.findings(
            report,
            switch.switches if switch is not None else 0,
            gauge.holdings.trends(),
            rescales=rescales.done if rescales is not None else (),
            planned={kind: at_least(min(seconds, report.seconds), us) for kind, us in every_us.items()},
            verdict=judge(written, report.offsets) if written is not None else None,
        )
        out.write({**msgspec.to_builtins(report), "chaos": msgspec.to_builtins(found)})
        typer.echo("\n".join([*found.lines, *last_lines(report)]), err=out.standard)
        _conclude(found, written)


def _own() -> tuple[Path, Loaded]:
    """The pipeline that the command brings along, and where it writes."""
    from penstock.demo.oracle import pipeline

    written = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    return written, Loaded((pipeline(written),), options=dict(OWN))


def _conclude(found: Findings, written: Path | None) -> None:
    """Fail if there is a reason to; output that is wrong is kept."""
    if found.passed:
        if written is not None:
            shutil.rmtree(written, ignore_errors=True)
        return
    why = "; ".join(found.faults) if found.kills else "nobody was killed; run it longer"
    typer.echo(f"FAILED: {why or 'no epoch was committed'}", err=True)
    if written is not None:
        typer.echo(f"the output is kept in {written}", err=True)
    raise typer.Exit(Exit.FAILED)
