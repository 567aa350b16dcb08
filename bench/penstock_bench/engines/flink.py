"""Flink in an environment of its own: PyFlink in thread and in process mode, and Flink SQL.

The jobs are in `foreign/programs/run_flink.py` and `foreign/programs/flink_sql.py`, run in Flink's embedded cluster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from penstock.durations import parse_us
from penstock_bench.engines.environments import EngineEnvironment, InEnvironment
from penstock_bench.engines.launch import FOREIGN, Launch
from penstock_bench.meter.engine import Output, Rate, RunOptions, cannot, no_java
from penstock_bench.meter.subject import Subject
from penstock_bench.workloads.base import time_us

ENVIRONMENT = EngineEnvironment("flink", ("apache-flink==2.3.0",))
"""PyFlink brings NumPy and, through Beam, the client of Redis, which two of the workloads need."""
BUFFER_TIMEOUT = "1ms"  # Flink's default of 100 ms would be the latency of all that crosses a network buffer
BUNDLE = "2ms"  # process mode hands events to Python in bundles; the default of 1 s would be the latency
WATERMARK = "2 ms"
"""How often a watermark goes out; Flink's default of 200 ms would be the latency of windows and of some joins."""
LEAD_S = {"thread": 3.0, "process": 12.0, "sql": 2.0}
"""The source connects before the operators after it are up; Python's processes take longest."""
HALF_US = 500  # Flink SQL's clock cuts off what is below a millisecond; half of one is right on average
# A row as the print connector writes it, "2> +U[a, 1, …]": what is retracted (-U, -D) is no result.
_CHANGE = re.compile(rb"(?:\d+> )?\+[IU]\[(.*)\]")


class Flink(InEnvironment):
    """PyFlink's DataStream API with Python functions, or Flink SQL without any Python."""

    name = "flink"
    environment = ENVIRONMENT
    variants: ClassVar = {
        "thread": "PyFlink, Python inside the JVM's threads",
        "process": "PyFlink, Python in processes of its own",
        "sql": "Flink SQL, no Python; times of results in whole milliseconds",
    }
    options: ClassVar = {
        "buffer-timeout": f"how long a record may wait in a network buffer, default {BUFFER_TIMEOUT}",
        "bundle": f"process mode: how long a record may wait for its bundle, default {BUNDLE}",
    }

    def supports(self, subject: Subject) -> str | None:
        if self.variant != "sql":
            return no_java() or cannot(subject, ("window", "session", "join"))
        nested = f"'{subject.nested}' has state behind state, whose times it cannot order" if subject.nested else None
        able, loads = ("window", "join"), "no function of SQL costs that much by itself"
        return no_java() or nested or subject.not_in_sql or cannot(subject, able, loads=loads)

    def configuration(self, options: RunOptions) -> dict[str, str]:
        self.check(options.settings)
        buffer = options.settings.get("buffer-timeout", BUFFER_TIMEOUT)
        buffer_us = parse_us(buffer, option="buffer-timeout", allow_zero=True)
        found = {
            "parallelism.default": str(options.parallelism),
            "execution.buffer-timeout.interval": f"{buffer_us // 1000} ms",
            "pipeline.object-reuse": "true",
        }
        if self.variant == "sql":
            # Local time, which CURRENT_ROW_TIMESTAMP is printed in, must not depend on the machine.
            return {**found, "table.local-time-zone": "UTC"}
        found["python.execution-mode"] = self.variant
        found["pipeline.auto-watermark-interval"] = WATERMARK
        if self.variant == "process":
            bundle_us = parse_us(options.settings.get("bundle", BUNDLE), option="bundle")
            found["python.fn-execution.bundle.time"] = str(max(bundle_us // 1000, 1))
        return found

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        configuration = self.configuration(options)
        launch = Launch(
            commands=[[ENVIRONMENT.python, "-m", "programs.run_flink"]],
            specification={"variant": self.variant, "configuration": configuration},
            environment=environment(),
            lead_s=LEAD_S[self.variant],
            dealt=1 if self.variant == "sql" else options.parallelism,
            settings=configuration,
        )
        if self.variant == "sql":
            return replace(launch, read=lambda directory: read_printed(directory / "program-0.log", subject))
        return launch


def environment() -> Mapping[str, str]:
    # Thread mode looks for a python on the PATH; the environment's must be the first.
    binaries = str(Path(ENVIRONMENT.python).parent)
    # In its embedded cluster PyFlink would run all Python in the client's process unless told otherwise.
    return {
        "PYTHONPATH": str(FOREIGN),
        "_python_worker_execution_mode": "process",
        "PATH": os.pathsep.join([binaries, os.environ.get("PATH", "")]),
    }


def read_printed(log: Path, subject: Subject) -> list[Output]:
    """Read the rows that the print connector has written, the newest value of each change."""
    convert = _CONVERTERS[subject.columns[0]]
    outputs = []
    for line in log.read_bytes().splitlines():
        if match := _CHANGE.fullmatch(line):
            *values, at = match[1].decode().split(", ")
            outputs.append(Output(time_us(f"{at}Z") + HALF_US, convert(values)))
    outputs.sort(key=lambda output: output.out_us)
    return outputs


_CONVERTERS: dict[str, Callable[[list[str]], list[Any]]] = {
    "campaign_id": lambda values: [values[0], int(values[1]) * 1000, int(values[2])],
    "word": lambda values: [values[0], int(values[1])],
    "sink": lambda values: [*values[:3], int(values[3]), int(values[4])],
    "number": lambda values: [int(values[0]), values[1]],
}
