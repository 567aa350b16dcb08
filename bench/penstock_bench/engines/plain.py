"""The engine that is none, one loop in Python, and what the meter can do: the generator's limit, the least latency."""

from __future__ import annotations

import platform
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from penstock_bench.engines.inputs import prepare
from penstock_bench.engines.launch import FOREIGN, START_S_MAX, Launch, Launched, feeding, limit_of
from penstock_bench.meter.engine import Engine, Rate, RunOptions, cannot
from penstock_bench.meter.evaluate import evaluate
from penstock_bench.meter.rows import Check
from penstock_bench.meter.subject import Subject

LIMIT_RECORDS = 200_000
FLOOR_S = 2.0
FLOOR_WARM_UP_S = 1.0
RECEIVE_BYTES = 1 << 20


class Plain(Launched):
    """One process, one loop, a dictionary."""

    name = "plain"
    variants: ClassVar = {"loop": "one loop in Python over the socket: the floor of the meter"}

    def version(self) -> str:
        return f"Python {platform.python_version()}"

    def supports(self, subject: Subject) -> str | None:
        return cannot(subject, ("window", "session", "join"))

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        return Launch([[sys.executable, "-m", "programs.run_plain"]], environment={"PYTHONPATH": str(FOREIGN)})


def generator_limit(subject: Subject) -> Check:
    """Measure how fast prepared events go over loopback to a reader that throws them away."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        given = subject.input(LIMIT_RECORDS, None, total=LIMIT_RECORDS)
        began = time.monotonic()
        prepare(subject, given, time.time_ns() // 1000, directory, 1)
        made_s = time.monotonic() - began
        with feeding(directory, 1, None) as feeder:
            port = feeder.message("port", START_S_MAX)
            began = time.monotonic()
            with socket.create_connection(("127.0.0.1", port)) as connection:
                buffer = bytearray(RECEIVE_BYTES)
                while connection.recv_into(buffer):
                    pass
                sent_s = time.monotonic() - began
    how = "lines made beforehand, sent over loopback to a reader that throws them away"
    return limit_of(LIMIT_RECORDS, sent_s, how, made_eps=round(LIMIT_RECORDS / made_s))


def meter_floor(
    subject: Subject,
    rate: Rate,
    options: RunOptions,
    loop: Engine | None = None,
    how: str = "from the same socket to the same log",
) -> Check:
    """Measure the latency of the workload as one loop in Python, between the same two ends."""
    short = replace(options, warm_up_s=FLOOR_WARM_UP_S, settings={})
    observed = (loop or Plain()).run(subject, rate, FLOOR_S, short)
    found = evaluate(subject, observed, rate, FLOOR_S, short)
    p50_ms, p99_ms = (found.latency.quantile(share) / 1000 for share in (0.5, 0.99))
    detail: dict[str, object] = {"p99_ms": p99_ms, "rate_eps": round(found.events / (FLOOR_WARM_UP_S + FLOOR_S))}
    detail["how"] = f"no engine: one loop in Python {how}"
    return Check("floor of the meter", p50_ms, "ms", "below what is measured", found.sustained, detail)
