"""The engine that is none: the workload as one loop in Python; what it measures is the meter's own floor."""

from __future__ import annotations

import platform
import sys
from typing import ClassVar

from penstock_bench.engines.socket_run import FOREIGN, Launch, run_fed
from penstock_bench.meter.engine import Engine, Observation, Rate, RunOptions, cannot
from penstock_bench.meter.subject import Subject


class Plain(Engine):
    """One process, one loop, a dictionary."""

    name = "plain"
    variants: ClassVar = {"loop": "one loop in Python over the socket: the floor of the meter"}

    def version(self) -> str:
        return f"Python {platform.python_version()}"

    def supports(self, subject: Subject) -> str | None:
        return cannot(subject, ("window", "join"))

    def run(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Observation:
        launch = Launch(
            commands=[[sys.executable, "-m", "programs.run_plain"]], environment={"PYTHONPATH": str(FOREIGN)}
        )
        return run_fed(self.label, subject, rate, seconds, options, launch)
