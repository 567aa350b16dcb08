"""The peer through the same failure: the Yahoo pipeline on Structured Streaming, whose processes are killed.

It is fed and judged like any engine, and the judge of what a kill did is that of our own failures. Two kinds of loss:
an executor of a real standalone cluster (the query is SQL, so that its JVM is what works), and a Python worker of Spark
in one process (parse, filter and join are a Python function on Arrow batches).
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum
from pathlib import Path

import msgspec

from penstock_bench.engines import RunOptions, subject
from penstock_bench.engines.launch import Launch
from penstock_bench.engines.spark import Spark, launched
from penstock_bench.engines.spark_session import executors, python_workers
from penstock_bench.meter.engine import Rate
from penstock_bench.meter.rows import Check, ResultRow
from penstock_bench.meter.runner import measure, new_run
from penstock_bench.meter.standalone import standalone
from penstock_bench.meter.subject import Subject
from penstock_bench.meter.timeline import DEFINITION
from penstock_bench.studies.kills import WARM_UP_S, judge

CALM_S = 5.0
WORKERS = 2
LOCAL_MASTER = f"local[{WORKERS},4]"
"""A failed task is tried up to 4 times, as on a cluster; in one process the default is not to try again."""
EXECUTOR_SETTINGS = {"spark.executor.cores": "1", "spark.executor.memory": "1g", "spark.cores.max": str(WORKERS)}


class Victim(Enum):
    """What is killed."""

    EXECUTOR = "executor"
    PYTHON_WORKER = "python-worker"

    @property
    def kills_s(self) -> tuple[float, ...]:
        """When, after the calm time; an executor takes long to replace."""
        return (0.0,) if self is Victim.EXECUTOR else (0.0, 7.0)

    @property
    def seconds(self) -> float:
        """How long is measured; events go on for a while after the last kill."""
        return CALM_S + (20.0 if self is Victim.EXECUTOR else 14.0)


class Struck(Spark):
    """Structured Streaming on a cluster or in one process, with kills on the way."""

    def __init__(self, victim: Victim, master: str) -> None:
        super().__init__("python" if victim is Victim.PYTHON_WORKER else "sql")
        self.killed_us: list[int] = []
        self._victim, self._master = victim, master

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        settings = EXECUTOR_SETTINGS if self._victim is Victim.EXECUTOR else {}
        told = launched(self.variant, "", self._master, "as fast as possible", settings, closing=True)
        return replace(told, blows=[(CALM_S + after_s, self._strike) for after_s in self._victim.kills_s])

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
        row, found = measure(engine, subject("yahoo"), rate_eps, victim.seconds, options, new_run())
    row.note = f"Structured Streaming, {len(engine.killed_us)} x {victim.value} killed; {row.note}".rstrip("; ")
    first_us = found.start_us + round(WARM_UP_S * 1e6)
    end_us = first_us + round(victim.seconds * 1e6)
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
