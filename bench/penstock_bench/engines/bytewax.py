"""Bytewax in an environment of its own; the dataflow is in `foreign/programs/run_bytewax.py`."""

from __future__ import annotations

from typing import ClassVar

from penstock.testing.servers import HOST, free_ports
from penstock_bench.engines.environments import EngineEnvironment, InEnvironment
from penstock_bench.engines.launch import FOREIGN, Launch
from penstock_bench.meter.engine import Rate, RunOptions, cannot
from penstock_bench.meter.subject import Subject


class Bytewax(InEnvironment):
    """One process, or a cluster of as many as the parallelism on this machine."""

    name = "bytewax"
    environment = EngineEnvironment("bytewax", ("bytewax==0.21.1", "orjson>=3.10", "numpy>=2", "redis>=5.3"))
    variants: ClassVar = {
        "processes": "a cluster of processes, one worker in each",
        "single": "one process, one worker",
    }

    def supports(self, subject: Subject) -> str | None:
        return cannot(subject, ("window", "session", "join"))

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        workers = options.parallelism if self.variant == "processes" else 1
        command = [self.environment.python, "-m", "bytewax.run", "programs.run_bytewax:flow"]
        commands = [command]
        if workers > 1:
            addresses = ";".join(f"{HOST}:{port}" for port in free_ports(workers))
            commands = [[*command, "-i", str(i), "-a", addresses] for i in range(workers)]
        environment = {"PYTHONPATH": str(FOREIGN)}
        return Launch(commands, {"workers": workers}, environment, connections=workers)
