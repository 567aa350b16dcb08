"""`penstock demo`: a model called per event through a burst, in changing forms and in each alone, checked exactly."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from penstock.cli.foreground import attended, kept_spark
from penstock.cli.outcome import Exit, JsonOut, told
from penstock.cli.run import GroupSizeOption, IntervalOption, JsonOption, ParallelismOption, SlotsOption, TopOption
from penstock.control.monitor import Status
from penstock.dashboard.numbers import human, measure
from penstock.errors import InvalidOption
from penstock.pipeline.options import Forms

if TYPE_CHECKING:
    from penstock.demo.series import BurstFigures, Course
    from penstock.demo.story import Demo, Verified
    from penstock.runtime.report import Report

TITLE = "Penstock through a burst: a model called for every event"
ORDER = (Forms.ADAPTIVE, Forms.RECORD, Forms.BATCH)


def demo(
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", help="Length of each run's input. Default: 12.")
    ] = None,
    base: Annotated[float | None, typer.Option(metavar="N", help="Events per second while calm.")] = None,
    peak: Annotated[float | None, typer.Option(metavar="N", help="Events per second in the burst.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only the adaptive run, and a short one.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the picture goes.")] = Path("penstock-demo"),
    json: JsonOption = None,
    parallelism: ParallelismOption = None,
    interval: IntervalOption = None,
    slots: SlotsOption = None,
    group_size: GroupSizeOption = None,
    top: TopOption = True,
) -> None:
    """Send a burst through a pipeline that calls a model for every event, and compare three ways to take it.

    The stream is calm, then comes a burst that is more than the record form can carry. The first run changes the forms
    of its operations by itself; the others stay in record form and in batch form, on the same input. At the end all
    scores are computed again without Penstock; the command fails if one is missing, doubled, wrong or out of order.
    """
    from penstock.demo import story
    from penstock.demo.series import Scene

    with told(Exit.REFUSED):
        json_out = JsonOut(json)
        length = seconds if seconds is not None else story.QUICK_SECONDS if quick else story.SECONDS
        if not 3.0 <= length <= 3600.0:
            raise InvalidOption(option="--seconds", given=length, allowed="3 to 3600")
        scene = Scene.of(story.BASE_EPS if base is None else base, story.PEAK_EPS if peak is None else peak, length)
        given = {"parallelism": parallelism, "interval": interval, "slots": slots, "group_size": group_size}
        options = {name: value for name, value in given.items() if value is not None}
        pictures = _directory(out)
    with told(Exit.FAILED), tempfile.TemporaryDirectory(prefix="penstock-demo-") as scratch:
        shown = story.Demo(scene, Path(scratch))
        with told(Exit.REFUSED):
            shown.plan(Forms.ADAPTIVE, **options)  # whatever is wrong is said before Spark starts
        runs = _runs(shown, ORDER[:1] if quick else ORDER, options, top)
        with json_out.aside():
            _tell(shown, runs, pictures)
        json_out.write(_document(shown, runs))
        if not all(each.verified.exact for each in runs):
            raise typer.Exit(Exit.FAILED)


@dataclass(frozen=True)
class _Run:
    course: Course
    report: Report
    verified: Verified


def _runs(shown: Demo, order: tuple[Forms, ...], options: dict[str, Any], view: bool) -> list[_Run]:
    from penstock.demo.series import Sampler
    from penstock.demo.story import PATIENCE_S

    runs: list[_Run] = []
    plans = {forms: shown.plan(forms, **options) for forms in order}
    with kept_spark(plans[order[0]], view=view):
        for number, (forms, plan) in enumerate(plans.items(), start=1):
            sampler = Sampler(shown.scene)
            title = f"{number} of {len(order)}   {_name(forms)}"
            typer.echo(title, err=True)

            def heading(status: Status, title: str = title) -> str:
                at_s = (status.at_us - status.start_us) / 1e6 if status.start_us else 0.0
                return f"{title}   {shown.scene.word(at_s)}: {human(shown.scene.rate_eps(at_s))} events/s are due"

            ended = attended(plan, shown.scene.seconds + PATIENCE_S, view=view, meanwhile=sampler, heading=heading)
            verified = shown.verify(forms, ended.report)
            course = shown.course(forms, sampler, ended.report, verified)
            runs.append(_Run(course, ended.report, verified))
            _tell_run(course.figures, verified)
            if ended.interrupted:
                typer.echo("interrupted: the other runs are left out", err=True)
                break
    return runs


def _name(forms: Forms) -> str:
    return forms.value if forms is Forms.ADAPTIVE else f"{forms.value} only"


def _directory(path: Path) -> Path:
    """Make the directory for the pictures, so that a path that cannot be one is refused before the start."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption(option="--out", given=str(path), allowed=f"a directory ({error.strerror})") from None
    return path


def _tell_run(figures: BurstFigures, verified: Verified) -> None:
    burst = "" if figures.burst_p99_ms is None else f"p99 of the burst {measure(figures.burst_p99_ms)} ms, "
    drained = "" if figures.drained_s is None else f"drained {figures.drained_s:.1f} s after it, "
    typer.echo(
        f"  {burst}backlog up to {human(figures.backlog_max)}, {drained}switches: {figures.switches}; "
        f"{verified.sentence}",
        err=True,
    )


def _tell(shown: Demo, runs: list[_Run], pictures: Path) -> None:
    from penstock.dashboard.view import switch_line
    from penstock.demo import page
    from penstock.demo.table import comparison

    console = Console(highlight=False)
    for switch in [each for run in runs[:1] for each in run.course.switches]:
        console.print(f"{switch.at_s:5.1f}s ", switch_line(switch), soft_wrap=True)
        console.print(f"        {switch.reason}", style="dim", soft_wrap=True)
    console.print(comparison([each.course.figures for each in runs]))
    for each in runs:
        console.print(f"{each.course.forms}: {each.verified.sentence}", style="" if each.verified.exact else "bold red")
    for path in page.write(pictures, shown.scene, [each.course for each in runs], TITLE):
        console.print(f"picture: {path}", soft_wrap=True)


def _document(shown: Demo, runs: list[_Run]) -> dict[str, object]:
    """The report of the adaptive run, and beside it every run with its time series."""
    first = runs[0]
    return {
        **msgspec.to_builtins(first.report),
        "verified": msgspec.to_builtins(first.verified),
        "scene": msgspec.to_builtins(shown.scene),
        "runs": [
            {
                "forms": each.course.forms,
                "figures": msgspec.to_builtins(each.course.figures),
                "verified": msgspec.to_builtins(each.verified),
                "switches": msgspec.to_builtins(each.course.switches),
                "components_ms": each.report.components_ms,
                "series": msgspec.to_builtins(each.course.samples),
            }
            for each in runs
        ],
    }
