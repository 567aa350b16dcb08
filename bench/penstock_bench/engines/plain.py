"""The engine that is none: the workload as one loop in Python; what it measures is the meter's own floor."""

from __future__ import annotations

import platform
import sys
from typing import ClassVar

from penstock_bench.engines.launch import FOREIGN, Launch, Launched
from penstock_bench.meter.engine import Rate, RunOptions, cannot
from penstock_bench.meter.subject import Subject


class Plain(Launched):
    """One process, one loop, a dictionary."""

    name = "plain"
    variants: ClassVar = {"loop": "one loop in Python over the socket: the floor of the meter"}

    def version(self) -> str:
        return f"Python {platform.python_version()}"

    def supports(self, subject: Subject) -> str | None:
        return cannot(subject, ("window", "join"))

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        return Launch([[sys.executable, "-m", "programs.run_plain"]], environment={"PYTHONPATH": str(FOREIGN)})
