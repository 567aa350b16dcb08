"""`penstock run`: runs the pipelines of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.foreground import execute
from penstock.cli.load import load
from penstock.cli.outcome import Exit, JsonOut, told
from penstock.connectors import files as directory
from penstock.dashboard.summary import last_lines
from penstock.durations import parse_us
from penstock.errors import InvalidOption
from penstock.operators import DEAD_LETTER_SCHEMA
from penstock.pipeline.options import read_paths
from penstock.runtime.shipping import check_paths, make_importable

FileArgument = Annotated[Path, typer.Argument(metavar="FILE.py", help="A Python file with one or more pipelines.")]
ForOption = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Drain and end after this time: 30s, 5m.")]
ParallelismOption = Annotated[
    int | None,
    typer.Option("--parallelism", metavar="N", help="Instances; most workers. Default: cores, at most 8."),
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="OUT",
        help="Write the report to this file; - for standard output, and what else is printed to standard error.",
    ),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="DIR", help="Keep snapshots here; a job started again with it goes on."),
]
TopOption = Annotated[bool, typer.Option("--top/--no-top", help="Show the live view where there is a terminal.")]


IntervalOption = Annotated[
    str | None, typer.Option("--interval", metavar="TIME", help="Least time that a micro-batch gathers. Default: 50ms.")
]
SlotsOption = Annotated[
    int | None,
    typer.Option("--slots", metavar="N", help="Tasks that run micro-batches side by side. Default: one per worker."),
]
GroupSizeOption = Annotated[
    int | None,
    typer.Option("--group-size", metavar="N", help="Micro-batches of a task in one Spark job. Default: tuned."),
]
WorkersOption = Annotated[
    str | None,
    typer.Option("--workers", metavar="N|LEAST-MOST", help="Workers: at the start, or within which the job chooses."),
]
ReplicasOption = Annotated[
    int | None,
    typer.Option("--replicas", metavar="N", help="Processes that stand by to compute slow operations side by side."),
]
ReplicaIntervalOption = Annotated[
    str | None,
    typer.Option("--replica-interval", metavar="TIME", help="How often replicas are decided on. Default: 1s."),
]
GroupingOption = Annotated[
    str | None,
    typer.Option("--grouping", metavar="WHO", help="Which replica is next: load, the least busy one; or shuffle."),
]
EventTimeoutOption = Annotated[
    str | None,
    typer.Option("--event-timeout", metavar="TIME", help="Drop what has waited for so long at its source, and count."),
]
QueueBoundOption = Annotated[
    int | None,
    typer.Option("--queue-bound", metavar="N", help="Drop the oldest where more wait at a source, and count them."),
]
WorkerIntervalOption = Annotated[
    str | None,
    typer.Option("--worker-interval", metavar="TIME", help="How often workers are decided on. Default: 1s."),
]
ShrinkAfterOption = Annotated[
    str | None,
    typer.Option("--shrink-after", metavar="TIME", help="Go on without a worker that is silent so long. Default: 10m."),
]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics",
        metavar="PLACE",
        help="Send metrics to file:PATH, prometheus:PORT or influx:URL/DATABASE; may be repeated.",
    ),
]


PyFilesOption = Annotated[
    list[str] | None,
    typer.Option("--py-files", metavar="A.zip,B.py", help="Modules, packages, archives of them; may be repeated."),
]
FilesOption = Annotated[
    list[str] | None,
    typer.Option("--files", metavar="A,B", help="Files for the workers, found with pyspark.SparkFiles.get."),
]
EnvironmentOption = Annotated[
    Path | None,
    typer.Option("--environment", metavar="ARCHIVE", help="The Python of a cluster's workers; see penstock pack."),
]


def run(
    file: FileArgument,
    duration: ForOption = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark master. Default: embedded.")] = None,
    parallelism: ParallelismOption = None,
    workers: WorkersOption = None,
    json: JsonOption = None,
    name: Annotated[str | None, typer.Option(help="Name of the job. Default: the file's.")] = None,
    epoch: Annotated[str | None, typer.Option(metavar="TIME", help="Time between commits. Default: 1s.")] = None,
    dead_letters: Annotated[
        Path | None, typer.Option(metavar="DIR", help='Where bad records of operations with "dead_letter" go.')
    ] = None,
    checkpoint: CheckpointOption = None,
    bootstrap: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Begin with the state that 'penstock backfill --state' wrote.")
    ] = None,
    forms: Annotated[
        str | None,
        typer.Option(metavar="FORMS", help="adaptive: operations change form with the load; record, batch: they stay."),
    ] = None,
    pin: Annotated[
        list[str] | None, typer.Option(metavar="OP=FORM", help="Keep an operation in one form; may be repeated.")
    ] = None,
    advise: Annotated[bool, typer.Option("--advise", help="Report what would be switched; switch nothing.")] = False,
    interval: IntervalOption = None,
    slots: SlotsOption = None,
    group_size: GroupSizeOption = None,
    driver_address: Annotated[
        str | None, typer.Option(metavar="HOST", help="Where the machines of a cluster reach this process.")
    ] = None,
    bind_address: Annotated[
        str | None, typer.Option(metavar="HOST", help="What this process listens at, if that is another address.")
    ] = None,
    ports: Annotated[
        str | None, typer.Option(metavar="FIRST-LAST", help="Ports that the job's processes listen at.")
    ] = None,
    py_files: PyFilesOption = None,
    files: FilesOption = None,
    environment: EnvironmentOption = None,
    replicas: ReplicasOption = None,
    replica_interval: ReplicaIntervalOption = None,
    grouping: GroupingOption = None,
    event_timeout: EventTimeoutOption = None,
    queue_bound: QueueBoundOption = None,
    worker_interval: WorkerIntervalOption = None,
    shrink_after: ShrinkAfterOption = None,
    metrics: MetricsOption = None,
    top: TopOption = True,
) -> None:
    """Run the pipelines of a file until their sources end, for a time, or until Ctrl-C.

    Runs what the file gives to ps.run or ps.start, or else every pipeline that it defines at module level.
    Ctrl-C once drains and commits, twice stops at once.
    """
    with told(Exit.REFUSED):
        out = JsonOut(json)
        pins = read_pins(pin or [])
        sent = shipped(py_files, files)
        with out.aside():
            loaded = load(file)
        wanted = duration if duration is not None else loaded.duration
        seconds = None if wanted is None else parse_us(wanted, option="--for") / 1e6
        sink = None
        if dead_letters is not None:
            sink = directory(str(dead_letters), existing="append")
            sink.check(DEAD_LETTER_SCHEMA)
        plan = loaded.plan(
            dead_letters=sink,
            name=name,
            master=master,
            parallelism=parallelism,
            workers=workers,
            epoch=epoch,
            checkpoint=checkpoint,
            bootstrap=bootstrap,
            forms=forms,
            pin={**loaded.options.get("pin", {}), **pins} if pins else None,
            advise=True if advise else None,
            interval=interval,
            slots=slots,
            group_size=group_size,
            driver_address=driver_address,
            bind_address=bind_address,
            ports=ports,
            **sent,
            environment=environment,
            replicas=replicas,
            replica_interval=replica_interval,
            grouping=grouping,
            event_timeout=event_timeout,
            queue_bound=queue_bound,
            worker_interval=worker_interval,
            shrink_after=shrink_after,
            metrics=metrics or None,
        )
    with told(Exit.FAILED):
        with out.aside():
            report = execute(plan, seconds, view=top)
        out.write(report)
        typer.echo("\n".join(last_lines(report)), err=out.standard)


def shipped(py_files: list[str] | None, files: list[str] | None) -> dict[str, tuple[str, ...]]:
    """Read what `--py-files` and `--files` were given, and let the program import the former."""
    given = {"py_files": py_files, "files": files}
    sent = {name: read_paths(f"--{name.replace('_', '-')}", ",".join(each)) for name, each in given.items() if each}
    check_paths(**sent)
    make_importable(sent.get("py_files", ()))
    return sent


def read_pins(given: list[str]) -> dict[str, str]:
    """Read what `--pin` was given: forms by operation. Whether there are such, the plan knows."""
    pins: dict[str, str] = {}
    for each in given:
        operation, equals, form = each.rpartition("=")
        if not (operation and equals and form):
            raise InvalidOption(
                option="--pin", given=each, allowed="OPERATION=FORM, as in score=batch, with the form record or batch"
            )
        if pins.setdefault(operation, form) != form:
            raise InvalidOption(option="--pin", given=each, allowed=f"one form for '{operation}'")
    return pins
