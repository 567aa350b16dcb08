"""Structured Streaming beside our own runs, where a study has a place for it and was asked to; also while it is killed.

It is fed and judged like any engine, and the judge of what a kill did is that of our own failures. Two kinds of loss:
an executor of a real standalone cluster (the query is SQL, so that its JVM is what works), and a Python worker of Spark
in one process (parse, filter and join are a Python function on Arrow batches).
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum
from pathlib import Path

import msgspec

from penstock_bench.engines import RunOptions, open_engine, subject
from penstock_bench.engines.launch import Launch
from penstock_bench.engines.program import Program
from penstock_bench.engines.spark import Spark, launched
from penstock_bench.engines.spark_session import executors, python_workers
from penstock_bench.meter.engine import WARM_UP_S as WARM_UP_ENGINES_S
from penstock_bench.meter.engine import Rate
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import Check, ResultRow
from penstock_bench.meter.runner import measure, new_run
from penstock_bench.meter.stamped import read_outputs
from penstock_bench.meter.standalone import standalone
from penstock_bench.meter.subject import Came, Subject
from penstock_bench.meter.tally import counted
from penstock_bench.meter.timeline import DEFINITION
from penstock_bench.report.words import number
from penstock_bench.studies.base import Desk
from penstock_bench.studies.kills import WARM_UP_S, judge
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
    warm_up_s = SHORT_WARM_UP_S if desk.options.short else WARM_UP_ENGINES_S
    options, run = RunOptions(warm_up_s=warm_up_s, parallelism=desk.options.parallelism), new_run()
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


CALM_S = 5.0
WORKERS = 2
LOCAL_MASTER = f"local[{WORKERS},4]"
"""A failed task is tried up to 4 times, as on a cluster; in one process the default is not to try again."""
EXECUTOR_SETTINGS = {"spark.executor.cores": "1", "spark.executor.memory": "1g", "spark.cores.max": str(WORKERS)}


class Victim(Enum):
    EXECUTOR = "executor"
    PYTHON_WORKER = "python-worker"


KILLS_S = {Victim.EXECUTOR: (0.0,), Victim.PYTHON_WORKER: (0.0, 7.0)}
"""After the calm time; an executor takes long to replace."""
SECONDS = {Victim.EXECUTOR: CALM_S + 20.0, Victim.PYTHON_WORKER: CALM_S + 14.0}
"""Events go on for a while after the last kill."""


class Struck(Spark):
    """Structured Streaming on a cluster or in one process, with kills on the way."""

    def __init__(self, victim: Victim, master: str) -> None:
        super().__init__("python" if victim is Victim.PYTHON_WORKER else "sql")
        self.killed_us: list[int] = []
        self._victim, self._master = victim, master

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        settings = EXECUTOR_SETTINGS if self._victim is Victim.EXECUTOR else {}
        told = launched(self.variant, "", self._master, "as fast as possible", settings, closing=True)
        return replace(told, blows=[(CALM_S + after_s, self._strike) for after_s in KILLS_S[self._victim]])

    def _strike(self) -> None:
        (executors if self._victim is Victim.EXECUTOR else python_workers)()[0].kill()
        self.killed_us.append(time.time_ns() // 1000)


def lose(victim: Victim, rate_eps: float) -> tuple[ResultRow, Check]:
    """Kill one process after the other at fixed times; measure latency from the scheduled time of every event."""
    options = RunOptions(warm_up_s=WARM_UP_S, parallelism=WORKERS)
    with ExitStack() as stack:
        master = LOCAL_MASTER
        if victim is Victim.EXECUTOR:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            cluster = stack.enter_context(standalone(directory))
            cluster.add(WORKERS, "2g")
            master = cluster.master
        engine = Struck(victim, master)
        row, found = measure(engine, subject("yahoo"), rate_eps, SECONDS[victim], options, new_run())
    row.note = f"Structured Streaming, {len(engine.killed_us)} x {victim.value} killed; {row.note}".rstrip("; ")
    first_us = found.start_us + round(WARM_UP_S * 1e6)
    end_us = first_us + round(SECONDS[victim] * 1e6)
    outcome = judge(found.timeline, [(at_us, 1) for at_us in engine.killed_us], found.start_us, end_us, WORKERS)
    caught_up = [loss.caught_up_s for loss in outcome.losses]
    return row, Check(
        f"Structured Streaming catches up after a killed {victim.value}, longest",
        round(max(filter(None, caught_up), default=0.0), 2),
        "s",
        "reported, and an exact result",
        found.found.exact and None not in caught_up,
        {
            "caught_up": "every event that was due before the kill is counted in what the sink has",
            "kills": [msgspec.to_builtins(loss) for loss in outcome.losses],
            "normal": DEFINITION,
            "calm_p99_ms": outcome.calm_p99_ms,
            "calm_silent_ms": found.timeline.silent_us(first_us, first_us + round(CALM_S * 1e6)) / 1000,
            "exact": found.found.exact,
            "settings": row.settings,
        },
    )
