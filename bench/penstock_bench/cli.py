"""`penstock bench`: commands on workload files and measurements; the functions here only read options."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.outcome import Exit, JsonOut, told
from penstock.durations import parse_us
from penstock.errors import InvalidOption

if TYPE_CHECKING:
    from rich.console import Console

    from penstock_bench.commands import Asked

app = typer.Typer(
    name="bench",
    help="Workloads and benchmarks: check files, run engines, compare, study, report.",
    short_help="Workloads, engines side by side, studies, reports.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Source(StrEnum):
    """Where engines read their events from, and where their results are looked for."""

    FEED = "feed"
    KAFKA = "kafka"


RATE_EPS_MAX = 100_000_000.0
PARALLELISM_MAX = 64
WIDTH_WITHOUT_TERMINAL = 130
STUDIES_DIRECTORY = Path("benchmarks/results/studies")

WorkloadArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A workload file, JSON or YAML.")]

SubjectArgument = Annotated[
    str, typer.Argument(metavar="WORKLOAD", help="yahoo, wordcount, grep, scoring, lookup, or a file.")
]
EngineOption = Annotated[
    str, typer.Option("--engine", "-e", metavar="E[:VARIANT]", help="One that `bench engines` lists.")
]
EnginesOption = Annotated[
    list[str], typer.Option("--engine", "-e", metavar="E[:VARIANT]", help="Give it once for every engine.")
]
RateOption = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="Events per second. Default: the file's own, or 10000.")
]
WarmUpOption = Annotated[str, typer.Option("--warm-up", metavar="TIME", help="Run and checked, but not measured.")]
WorkersOption = Annotated[int, typer.Option("--parallelism", metavar="N", help="Workers, slots or processes.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the input.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="[E.]NAME=VALUE", help="An engine's own option; may be repeated.")
]
ResultsOption = Annotated[
    Path | None, typer.Option("--json", metavar="OUT", help="Write the results to this file; - for standard output.")
]
SourceOption = Annotated[
    Source, typer.Option("--source", help="Where events come from: a feed over a socket, or a topic of Kafka.")
]
FloorOption = Annotated[bool, typer.Option("--floor/--no-floor", help="Measure the meter's own latency first.")]


@app.callback()
def _bench() -> None:
    """Have what is asked to end by a signal end as by Ctrl-C: brokers and engines must not be left behind."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@app.command(short_help="Say what a workload file describes, or what is wrong.")
def check(file: WorkloadArgument) -> None:
    """Say what a workload file describes, or what is wrong with it; starts nothing.

    Prints sources, transformations and sinks with the rates to expect at each. Errors name the field by its path, and
    the nearest word that is allowed there. The probability p of a filter is that of dropping a message.
    """
    from penstock_bench.files import describe, load

    with told(Exit.REFUSED):
        typer.echo("\n".join(describe(load(file))))


@app.command(short_help="List engines with their variants and options.")
def engines() -> None:
    """List the engines that are installed, with their variants and options."""
    from penstock_bench.engines.registry import engine_class, engine_names
    from penstock_bench.kafka.engines import ENGINES

    with told(Exit.FAILED):
        for name in engine_names():
            found = engine_class(name)
            for variant, title in found.variants.items():
                typer.echo(f"{f'{name}:{variant}':22} {title}")
            for option, allowed in found.options.items():
                typer.echo(f"{'':22} --set {option}=…: {allowed}")
        typer.echo("\nwith --source kafka:")
        for name, over in ENGINES.items():
            for variant, title in over.variants.items():
                typer.echo(f"{f'{name}:{variant}':22} {title}")


@app.command(short_help="Run a workload on an engine at a rate.")
def run(
    workload: SubjectArgument,
    engine: EngineOption = "penstock",
    rate: RateOption = None,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to measure.")] = "20s",
    warm_up: WarmUpOption = "8s",
    parallelism: WorkersOption = 2,
    seed: SeedOption = 0,
    setting: SetOption = None,
    json: ResultsOption = None,
    floor: FloorOption = True,
    source: SourceOption = Source.FEED,
) -> None:
    """Run a workload on an engine at a rate, and compare every result with the exact one.

    Latency counts from the scheduled time of an event to the moment its result leaves the engine. Fails if the output
    is not exact.
    """
    rates = None if rate is None else [rate]
    _measure(1, floor, workload, [engine], rates, duration, warm_up, parallelism, seed, setting, json, source)


@app.command(short_help="Look for the highest rate that is sustained.")
def search(
    workload: SubjectArgument,
    engine: EngineOption = "penstock",
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="Events per second to begin with.")] = 50_000.0,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to measure each rate.")] = "10s",
    precision: Annotated[float, typer.Option(metavar="SHARE", help="How close to the limit to come.")] = 0.1,
    warm_up: WarmUpOption = "8s",
    parallelism: WorkersOption = 2,
    seed: SeedOption = 0,
    setting: SetOption = None,
    json: ResultsOption = None,
    source: SourceOption = Source.FEED,
) -> None:
    """Look for the highest rate that an engine sustains: one at which its backlog does not grow.

    Every trial is a whole run with a warm-up; rates double until one is not sustained, then the range is halved.
    """
    from penstock_bench.commands import run_search
    from penstock_bench.meter.search import check_precision

    with told(Exit.REFUSED):
        asked = _asked(workload, [engine], [rate], duration, warm_up, parallelism, seed, setting, json, source)
        check_precision(precision)
    with told(Exit.FAILED), closing(asked.place):
        run_search(asked, precision=precision)


@app.command(short_help="Measure engines side by side.")
def compare(
    workload: SubjectArgument,
    engine: EnginesOption,
    rate: Annotated[
        list[float] | None,
        typer.Option("--rate", metavar="N", help="Events per second; may be repeated. Default: the file's, or 10000."),
    ] = None,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to measure each time.")] = "10s",
    repeat: Annotated[int, typer.Option(metavar="N", help="Repetitions of every engine and rate.")] = 3,
    warm_up: WarmUpOption = "8s",
    parallelism: WorkersOption = 2,
    seed: SeedOption = 0,
    setting: SetOption = None,
    json: ResultsOption = None,
    floor: FloorOption = True,
    source: SourceOption = Source.FEED,
) -> None:
    """Measure engines side by side: the same input, in turns, with the spread of the repetitions.

    Fails if an output is not exact. The file that --json names has every measurement as soon as it is there, so
    Ctrl-C keeps those that were finished.
    """
    _measure(repeat, floor, workload, engine, rate, duration, warm_up, parallelism, seed, setting, json, source)


def _asked(
    workload: str,
    engines: list[str],
    rates: list[float] | None,
    duration: str,
    warm_up: str,
    parallelism: int,
    seed: int,
    setting: list[str] | None,
    json: Path | None,
    source: Source,
) -> Asked:
    """Read what a command is to measure from its options; whatever is wrong is refused before anything starts."""
    from penstock_bench.commands import Asked, parse_settings
    from penstock_bench.engines import RunOptions
    from penstock_bench.kafka.course import Course, on_kafka
    from penstock_bench.meter.runner import refuse

    out, place = JsonOut(json), on_kafka() if source is Source.KAFKA else Course()
    found = [place.engine(each) for each in engines]
    subject = place.subject(workload)
    settings = parse_settings(setting or [], found)
    if not 1 <= parallelism <= PARALLELISM_MAX:
        raise InvalidOption(option="--parallelism", given=parallelism, allowed=f"1 to {PARALLELISM_MAX}")
    warm_up_s = parse_us(warm_up, option="--warm-up", allow_zero=True) / 1e6
    options = RunOptions(warm_up_s=warm_up_s, parallelism=parallelism, seed=seed)
    seconds = parse_us(duration, option="--for") / 1e6
    for rate in rates or ():
        if not 0 < rate <= RATE_EPS_MAX:
            raise InvalidOption(option="--rate", given=rate, allowed=f"a number above 0, at most {RATE_EPS_MAX:,.0f}")
    for each in found:
        refuse(each, subject, replace(options, settings=settings[each.label]))
    return Asked(found, subject, rates or [None], seconds, options, settings, place, out, _console(out))


def _measure(repeat: int, floor: bool, *asked: Any) -> None:
    from penstock_bench.commands import check_comparison, run_comparison

    with told(Exit.REFUSED):
        wanted = _asked(*asked)
        check_comparison(wanted.engines, wanted.rates, repeat)
    with told(Exit.FAILED), closing(wanted.place):
        if not run_comparison(wanted, repetitions=repeat, floor=floor):
            raise typer.Exit(Exit.FAILED)


@app.command(short_help="Repeat figures of the papers.")
def study(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="A study by name, or 'all'.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results and figures go.")] = STUDIES_DIRECTORY,
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds instead of minutes: the figures mean nothing.")
    ] = False,
    peer: Annotated[
        bool, typer.Option("--peer", help="Measure Structured Streaming too, where it has a place.")
    ] = False,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long each measurement or step takes.")
    ] = None,
    parallelism: WorkersOption = 2,
    short: Annotated[bool, typer.Option("--short", help="A few of its measurements, for all of its checks.")] = False,
    traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Recorded loads, CSV files; default: what PENSTOCK_TRACES names.")
    ] = None,
) -> None:
    """Repeat figures of the papers: rates, burst, components, operations, throughput, switch-point, groups,
    latency-target, failure, elasticity, scale, state, isolation, dynamism, alternatives, replicas; and short, the part
    of them that `make bench` measures.

    Writes JSON and figures, and says what was claimed, and what was measured. Ctrl-C keeps what there is.
    """
    from penstock_bench.page import make_directory
    from penstock_bench.studies import STUDIES
    from penstock_bench.studies.base import StudyOptions
    from penstock_bench.studies.command import check, run_study

    with told(Exit.REFUSED):
        seconds = None if duration is None else parse_us(duration, option="--for") / 1e6
        options = StudyOptions(
            quick=quick, short=short, parallelism=parallelism, seconds=seconds, peer=peer, traces=traces
        )
        # The short set is a part of the others.
        names = [each for each in STUDIES if each != "short"] if name == "all" else [name]
        check(names, options)
        make_directory(out, out)
    with told(Exit.FAILED):
        for each in names:
            if not run_study(each, options, out, _console(JsonOut(None))):
                raise typer.Exit(Exit.INTERRUPTED)


@app.command(short_help="Make one HTML page of a directory of results.")
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory with JSON results.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the page goes; default: DIR/report.")] = None,
) -> None:
    """Make one HTML page and PNG figures of the results in a directory, with where we lose."""
    from penstock_bench.page import write

    with told(Exit.REFUSED):
        page, figures, skipped = write(directory, out or directory / "report")
        for each in skipped:
            typer.echo(f"left out: {each}", err=True)
        typer.echo(f"{page} and {len(figures)} figure{'' if len(figures) == 1 else 's'}")


def _console(out: JsonOut) -> Console:
    """Where people read: standard error if standard output is for the results."""
    from rich.console import Console

    return Console(stderr=out.standard, width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
