"""A real standalone cluster with several executors, started from the installed pyspark: one of them is lost.

The job runs in a process of its own, because this one's Spark is the embedded one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import psutil
import pyspark
import pytest

from penstock.bench.measure import read_rows
from penstock.bench.workloads import WORKLOADS, replay

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RATE, SECONDS = 2_000, 12
PROGRAM = """
import sys
import msgspec, penstock as ps
from penstock.bench.workloads import WORKLOADS
master, directory, rate, seconds, parallelism, forms = sys.argv[1:]
pipeline = WORKLOADS["yahoo"].pipeline(float(rate), ps.files(directory + "/out"), seconds=float(seconds))
checkpoint = directory + "/checkpoint"
options = dict(master=master, parallelism=int(parallelism), checkpoint=checkpoint, name="cluster", forms=forms)
job = ps.start(pipeline, **options)
while (report := job.wait(0.1)) is None:
    status = job.status()
    print(status.epoch, flush=True)
print(msgspec.json.encode(report).decode(), flush=True)
"""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + 60
    while not condition():
        assert monotonic() < deadline, "the cluster did not come up"
        threading.Event().wait(0.05)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and two workers of two slots each."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    log = tmp_path / "cluster.log"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    worker = [
        "--cores",
        "2",
        "--memory",
        "1g",
        "--host",
        "127.0.0.1",
        "--webui-port",
        "0",
        "-d",
        str(tmp_path / "work"),
    ]
    commands += [[f"{deploy}.worker.Worker", *worker, address]] * 2
    processes = []
    with log.open("wb") as out:
        try:
            for command in commands:
                started = subprocess.Popen([str(launcher), *command], stdout=out, stderr=out, env=environment)
                processes.append(started)
                if len(processes) == 1:
                    wait_for(lambda: "I have been elected leader" in log.read_text())
            wait_for(lambda: log.read_text().count("Registering worker") >= 2)
            yield address
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


def executors(root: psutil.Process) -> list[psutil.Process]:
    """JVMs of executors below this process."""
    found = []
    for process in root.children(recursive=True):
        try:
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.parametrize(("parallelism", "forms"), [(3, "adaptive")])
def test_an_executor_is_lost_and_nothing_else(master: str, tmp_path: Path, parallelism: int, forms: str) -> None:
    arguments = [master, str(tmp_path), str(RATE), str(SECONDS), str(parallelism), forms]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    job = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert job.stdout is not None
    lines: list[str] = []
    killed = 0
    for line in job.stdout:
        lines.append(line)
        if not killed and line.strip().isdigit() and int(line) >= 2:
            victims = executors(psutil.Process())
            assert len(victims) == 2
            os.kill(victims[0].pid, signal.SIGKILL)
            killed += 1
    assert job.wait(60) == 0
    assert killed == 1
    report = json.loads(lines[-1])
    workload = WORKLOADS["yahoo"]
    exact = workload.expected(replay(workload.source(RATE, seconds=SECONDS), report["start_us"]))
    assert workload.compare(exact, read_rows(tmp_path / "out"), parallelism).exact
    assert report["events_in"] == RATE * SECONDS
    assert (report["lost"], report["duplicated"], report["reordered"], report["late"]) == (0, 0, 0, 0)
