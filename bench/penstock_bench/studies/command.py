"""`penstock bench study`, after the options were read: runs a study, draws its figures, says what it found."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from penstock.errors import InvalidOption, nearest
from penstock.runtime.spark import close_session, open_session
from penstock_bench.report.draw import render
from penstock_bench.report.presentation import rows_table
from penstock_bench.studies import STUDIES
from penstock_bench.studies.base import StudyOptions, conduct
from penstock_bench.studies.dynamism import Dynamism
from penstock_bench.studies.replicas import Replicas
from penstock_bench.studies.traces import find_traces

PARALLELISM_MAX = 64
MARKS = {True: "holds", False: "does NOT hold", None: "cannot be compared"}


def check(names: list[str], options: StudyOptions) -> None:
    """Refuse what cannot be done, before anything is started."""
    for name in names:
        if name not in STUDIES:
            allowed, hint = ", ".join([*STUDIES, "all"]), nearest(name, list(STUDIES))
            raise InvalidOption(option="STUDY", given=name, allowed=allowed, hint=hint)
    if not 1 <= options.parallelism <= PARALLELISM_MAX:
        raise InvalidOption(option="--parallelism", given=options.parallelism, allowed=f"1 to {PARALLELISM_MAX}")
    if Dynamism.name in names or Replicas.name in names:
        find_traces(options.traces)


def run_study(name: str, options: StudyOptions, out: Path, console: Console) -> bool:
    """Run one study into a directory: its JSON, its figures, and its findings on the terminal; False if interrupted."""
    study = STUDIES[name]

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    say(f"{study.title} ({study.after})\n{study.method}")
    # One Spark for all jobs of the study: starting it is not what is measured.
    open_session("local", options.parallelism + study.beside, f"study-{name}")
    try:
        path = out / f"{study.file or name}.json"
        results, complete = conduct(study, options, path, say)
    finally:
        close_session()
    say("")
    console.print(rows_table(results.rows))
    say("")
    assert results.study is not None
    for claim in results.study.claims:
        say(f"{claim.source}\n  claimed:  {claim.claimed}\n  measured: {claim.measured}\n  {MARKS[claim.holds]}")
    for figure in study.figures(results) if not study.file else ():
        png = out / "figures" / f"{figure.slug}.png"
        png.parent.mkdir(parents=True, exist_ok=True)
        render(figure, png)
        say(f"figure: {png}")
    say(f"results: {path}")
    return complete
