"""Structured Streaming beside our own runs, where a study has a place for it and was asked to."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from penstock_bench.engines import RunOptions, open_engine, subject
from penstock_bench.engines.program import Program
from penstock_bench.engines.spark import launched
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import ResultRow
from penstock_bench.meter.runner import measure, new_run
from penstock_bench.meter.stamped import read_outputs
from penstock_bench.meter.subject import Came
from penstock_bench.meter.tally import counted
from penstock_bench.report.words import number
from penstock_bench.studies.base import Desk
from penstock_bench.workloads import AT_SINK, WORKLOADS

ENGINES = ("penstock:adaptive", "spark:sql")
SHORT_WARM_UP_S = 4.0
FILES = {"yahoo": (2_400_000, (2, 6)), "wordcount": (1_200_000, (3,)), "grep": (2_400_000, (6,))}
"""By workload: events, and how many files of 100,000 events each make a micro-batch; the best one counts."""
QUICK_EVENTS = 400_000
FILE_RECORDS = 100_000
EVENT_START_US = 1_700_000_000_000_000
SCHEDULE_EPS = 1e6
"""Of the times in the events; the files are read as fast as it goes."""
RUN_S_MAX = 600.0


def latency_beside(desk: Desk, workload: str, rate: float, seconds: float) -> None:
    """Measure ours and theirs at a rate through the meter of the engines: fed alike, judged by what came out."""
    options = RunOptions(parallelism=desk.options.parallelism)
    if desk.options.short:
        options = replace(options, warm_up_s=SHORT_WARM_UP_S)
    run = new_run()
    for engine in ENGINES:
        desk.tell(f"{workload} at {number(rate)}/s, {engine}, from outside")
        row, _ = measure(open_engine(engine), subject(workload), rate, desk.seconds(seconds), options, run)
        # Not to be compared with what a job says of itself: a table of its own.
        row.workload = outside(workload)
        desk.add(row)


def outside(workload: str) -> str:
    """What a workload is called where engines are measured from outside."""
    return f"{workload}, engines"


def carried_from_files(desk: Desk, workload: str) -> None:
    """Measure what its query carries of input that lies ready in files, so that no generator limits it."""
    events, files = FILES[workload] if not desk.options.quick else (QUICK_EVENTS, (1,))
    for each in files[-1:] if desk.options.short else files:
        desk.add(from_files(workload, events, each, desk.options.parallelism))


def from_files(name: str, events: int, files_per_batch: int, cores: int) -> ResultRow:
    """Count at the sink the events of the second half of the micro-batches; the first half compiles and warms up."""
    wanted = subject(name)
    given = wanted.input(SCHEDULE_EPS, None, total=events)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as text, Processes(apart=True) as processes:
        directory = Path(text)
        (directory / "input").mkdir()
        for first in range(0, events, FILE_RECORDS):
            records = given.records(first, FILE_RECORDS, EVENT_START_US)
            lines = b"".join(wanted.line(each) + b"\n" for each in records)
            (directory / "input" / f"{first:09}.txt").write_bytes(lines)
        launch = launched("sql", "", f"local[{cores}]", "available now")
        told = {**wanted.specification(), **launch.specification, "out": text, "parallelism": cores}
        told |= {"files": str(directory / "input"), "files_per_batch": files_per_batch}
        (directory / "spec.json").write_text(json.dumps(told))
        environment = {"PENSTOCK_SPEC": str(directory / "spec.json")}
        with Program("spark:sql", launch.commands[0], directory / "log", environment=environment) as program:
            processes.restart()
            program.wait(RUN_S_MAX)
            usages = processes.usages()
        outputs = read_outputs(directory)
    came = sorted({output.out_us for output in outputs})
    warm_us, end_us = came[len(came) // 2], came[-1]
    _, found = wanted.judge(given, Came([(each.out_us, each.values) for each in outputs], 0, EVENT_START_US))
    batch_events = FILE_RECORDS * files_per_batch
    eps = counted(outputs, wanted.columns, AT_SINK.get(name, WORKLOADS[name])).rate_eps(warm_us, end_us)
    return ResultRow(
        workload=wanted.name,
        engine="spark",
        form="batch",
        rate=None,
        seconds=(end_us - warm_us) / 1e6,
        events=events,
        capacity_eps=round(eps),
        cpu_cores=round(sum(each.cpu_cores for each in usages), 3),
        pss_mb=round(sum(each.memory_mb or 0.0 for each in usages), 1),
        lost=found.lost,
        duplicated=found.duplicated + found.wrong,
        variant="sql",
        settings=dict(launch.settings),
        note=f"Structured Streaming, batches of {batch_events:,} events ready in files, first half cut",
    )
