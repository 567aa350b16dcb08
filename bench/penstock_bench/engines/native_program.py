"""Penstock as a program of its own, like every engine that it is compared with; `native` starts it.

Results leave through a sink that stamps them as soon as they come, without waiting for a commit, as the others do.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.connectors.rates import RateSchedule
from penstock_bench.engines.subjects import subject
from penstock_bench.meter.stamped import Stamped

POLL_S = 0.05


def run(spec: dict[str, Any]) -> None:
    """Run a specification to its end; tells when the schedule began in a line of JSON."""
    wanted = subject(spec["reference"])
    sink = Stamped(Path(spec["out"]), wanted.columns, wanted.constants)
    rate = msgspec.convert(spec["rate"], RateSchedule | None)
    pipeline = wanted.pipeline(rate, spec["seconds"], sink, seed=spec["seed"])
    with ps.start(pipeline, name="bench", parallelism=spec["parallelism"], **spec["options"]) as job:
        while not job.start_us and job.wait(POLL_S) is None:
            pass
        print(json.dumps({"start_us": job.start_us}), flush=True)
        job.wait()


if __name__ == "__main__":
    run(json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text()))
