"""Penstock itself, in each of its forms, run and metered like the engines that it is compared with."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from penstock.connectors.rates import RateSchedule, Segment, as_schedule
from penstock.errors import InvalidOption
from penstock.pipeline.options import Options
from penstock_bench.engines.program import Program
from penstock_bench.engines.socket_run import DRAIN_S_MAX, START_S_MAX, measured_usages
from penstock_bench.meter.engine import Engine, Observation, Rate, RunOptions, no_java
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.stamped import read_outputs
from penstock_bench.meter.subject import Subject


class Penstock(Engine):
    """Its own source makes the events inside the workers, so their generation is part of its CPU."""

    name = "penstock"
    variants: ClassVar = {
        "adaptive": "each operation in the form that suits the load",
        "record": "record by record only",
        "batch": "micro-batches only",
    }
    options: ClassVar = {
        "epoch": "time between commits, default '1s'",
        "queue_records": "records that may wait on one edge",
    }

    def __init__(self, variant: str | None = None) -> None:
        super().__init__(variant)
        self.form = self.variant

    def version(self) -> str:
        return version("penstock")

    def supports(self, subject: Subject) -> str | None:
        return no_java() or subject.missing()

    def run(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Observation:
        job_options = self._job_options(options)
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            path = directory / "specification.json"
            specification = {
                "workload": subject.reference,
                "rate": encode_rate(rate),
                "seconds": options.warm_up_s + seconds,
                "seed": options.seed,
                "parallelism": options.parallelism,
                "out": str(directory),
                "options": job_options,
            }
            path.write_text(json.dumps(specification))
            options.tell("starting", None)
            settings = stack.enter_context(subject.beside())
            table = stack.enter_context(Processes())
            command = [sys.executable, "-m", "penstock_bench.engines.native_program", str(path)]
            program = stack.enter_context(Program(self.label, command, directory / "program.log", messages=True))
            table.name(program.pid, f"{self.label} driver")
            start_us = program.message("start_us", START_S_MAX)
            usages = measured_usages(table, start_us, seconds, options, [program])
            options.tell("waiting for the last results", None)
            finished = program.wait(max(start_us / 1e6 + options.warm_up_s + seconds + DRAIN_S_MAX - time.time(), 0.1))
            if not finished:
                program.close()
            notes = ["makes its own events, in its workers"]
            if not finished:
                notes.append(f"not done {DRAIN_S_MAX:g} s after the last event: stopped")
            return Observation(
                start_us=start_us,
                event_start_us=start_us,
                outputs=read_outputs(directory),
                partitions=options.parallelism,
                processes=usages,
                settings={"parallelism": options.parallelism, **settings, **job_options},
                notes=notes,
            )

    def _job_options(self, options: RunOptions) -> dict[str, Any]:
        found: dict[str, Any] = {**options.settings, "forms": self.variant}
        if "queue_records" in found:
            try:
                found["queue_records"] = int(found["queue_records"])
            except ValueError:
                raise InvalidOption(
                    option="queue_records", given=found["queue_records"], allowed="a whole number"
                ) from None
        Options.of(name="bench", parallelism=options.parallelism, **found)
        return found


def encode_rate(rate: Rate) -> dict[str, Any] | None:
    """Write a rate as JSON."""
    schedule = as_schedule(rate)
    if schedule is None:
        return None
    return {
        "segments": [[each.duration_us, each.rate_eps] for each in schedule.segments],
        "repeat_from": schedule.repeat_from,
    }


def decode_rate(told: dict[str, Any] | None) -> RateSchedule | None:
    """Read what `encode_rate` has written."""
    if told is None:
        return None
    return RateSchedule(tuple(Segment(*each) for each in told["segments"]), repeat_from=told["repeat_from"])
