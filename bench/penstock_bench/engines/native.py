"""Penstock itself, in each of its forms, run and metered like the engines that it is compared with."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any, ClassVar

import msgspec

from penstock.connectors.rates import as_schedule
from penstock.errors import InvalidOption
from penstock.pipeline.options import Options
from penstock_bench.engines.launch import Launch, Launched
from penstock_bench.meter.engine import Rate, RunOptions, no_java
from penstock_bench.meter.subject import Subject

PROGRAM = [[sys.executable, "-m", "penstock_bench.engines.native_program"]]


class Penstock(Launched):
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
        self.form = self.variant if self.variant in Penstock.variants else "adaptive"

    def version(self) -> str:
        return version("penstock")

    def supports(self, subject: Subject) -> str | None:
        return no_java() or subject.missing()

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        job_options = self._job_options(options)
        specification = {
            "reference": subject.reference,
            "rate": msgspec.to_builtins(as_schedule(rate)),
            "seconds": options.warm_up_s + seconds,
            "seed": options.seed,
            "options": job_options,
        }
        settings, notes = {"parallelism": options.parallelism, **job_options}, ["makes its own events, in its workers"]
        return Launch(PROGRAM, specification, connections=0, dealt=options.parallelism, settings=settings, notes=notes)

    def _job_options(self, options: RunOptions) -> dict[str, Any]:
        found: dict[str, Any] = {**options.settings, "forms": self.variant}
        if (given := found.get("queue_records")) is not None:
            try:
                found["queue_records"] = int(given)
            except ValueError:
                raise InvalidOption(option="queue_records", given=given, allowed="a whole number") from None
        Options.of(name="bench", parallelism=options.parallelism, **found)
        return found
