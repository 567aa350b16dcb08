"""A job on a host of its own, in a network namespace, whose link is cut and joined again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.runtime.neighbours import VARIABLE
from penstock_bench.meter.job import read_rows
from penstock_bench.workloads import WORKLOADS, replay
from waiting import WAIT_S

pytestmark = pytest.mark.spark

RATE, SECONDS, PARALLELISM = 2_000, 10, 2
STILL_LINES = 30
"""Looks at the job, ten a second, that show no new epoch: the link is really cut."""
PROGRAM = """
import sys
import msgspec, penstock as ps
from penstock_bench.workloads import WORKLOADS
directory, rate, seconds, parallelism = sys.argv[1:]
pipeline = WORKLOADS["yahoo"].pipeline(float(rate), ps.files(directory + "/out"), seconds=float(seconds))
job = ps.start(pipeline, parallelism=int(parallelism), name="cut", epoch="500ms")
while (report := job.wait(0.1)) is None:
    print(job.status().epoch, flush=True)
print(msgspec.json.encode(report).decode(), flush=True)
"""


@pytest.fixture
def host() -> Iterator[str]:
    """A network namespace with a loopback link."""
    name = f"penstock-{os.getpid()}"
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("only root, with iproute2, can make a network namespace")
    if subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not allow network namespaces")
    link(name, "up")
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True)


def link(host: str, state: str) -> None:
    subprocess.run(["ip", "netns", "exec", host, "ip", "link", "set", "lo", state], check=True)


def test_a_cut_link_delays_and_loses_nothing(host: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path), str(RATE), str(SECONDS), str(PARALLELISM)]
    command = ["ip", "netns", "exec", host, sys.executable, "-c", PROGRAM, *arguments]
    # Otherwise the processes, all on one host, would not use the link that is cut.
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, VARIABLE: "0"})
    assert job.stdout is not None
    lines: list[str] = []
    cut_at = joined_at = 0
    for line in job.stdout:
        lines.append(line.strip())
        if not cut_at and lines[-1].isdigit() and int(lines[-1]) >= 3:
            link(host, "down")
            cut_at = len(lines)
        elif cut_at and not joined_at and len(set(lines[-STILL_LINES:])) == 1:
            link(host, "up")
            joined_at = len(lines)
    assert job.wait(WAIT_S) == 0
    assert joined_at - cut_at >= STILL_LINES - 1
    report = json.loads(lines[-1])
    workload = WORKLOADS["yahoo"]
    exact = workload.expected(replay(workload.source(RATE, seconds=SECONDS), report["start_us"]))
    found = workload.compare(exact, read_rows(tmp_path / "out"), PARALLELISM)
    assert found.lost == report["late"]
    assert (found.duplicated, found.wrong, found.reordered) == (0, 0, 0)
    assert report["events_in"] == RATE * SECONDS
    assert (report["lost"], report["duplicated"], report["reordered"]) == (0, 0, 0)
