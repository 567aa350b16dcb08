"""A real standalone cluster with several executors, started from the installed pyspark: one of them is lost.

The job runs in a process of its own, because this one's Spark is the embedded one. It tells how it is in lines of JSON,
and in batch form it reads until it is told to drain: nothing ends before the loss has been seen and made good.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
import pyspark
import pytest

from penstock_bench.meter.job import read_rows
from penstock_bench.workloads import WORKLOADS, replay

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RATE, SECONDS = 2_000, 12
WAIT_S = 120.0
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Seven JVMs start here, and do little afterwards: none should compile much."""
PROGRAM = """
import sys, threading
import msgspec, penstock as ps
from penstock_bench.workloads import WORKLOADS
workload, directory, rate, seconds, options = sys.argv[1:]
limit = float(seconds) if seconds else None
pipeline = WORKLOADS[workload].pipeline(float(rate), ps.files(directory + "/out"), seconds=limit)
job = ps.start(pipeline, checkpoint=directory + "/checkpoint", name="cluster", **msgspec.json.decode(options))
def obey():
    {"drain": job.drain, "stop": job.stop}[sys.stdin.readline().strip()]()
threading.Thread(target=obey, daemon=True).start()
def tell(**what):
    print(msgspec.json.encode(what).decode(), flush=True)
while (report := job.wait(0.1)) is None:
    status = job.status()
    tell(
        epoch=status.epoch,
        recoveries=status.recoveries,
        workers=[each.pid for each in status.workers],
        slots=status.slots,
        waiting=status.waiting,
        forms={each.name: each.form for each in status.operations},
        groups=[each.group for each in job.adaptation().groups],
    )
tell(report=report)
"""
Told = dict[str, Any]
"""What the program says of its job."""


@dataclass(frozen=True)
class Cluster:
    """A master's address, and the environment of whoever uses it."""

    master: str
    environment: dict[str, str]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_S
    while not condition():
        assert monotonic() < deadline, "the cluster did not come up"
        threading.Event().wait(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of two slots each."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    settings = [f"spark.{each}.extraJavaOptions {JVM}" for each in ("driver", "executor")]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(settings))
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PENSTOCK_SPARK_UNAUTHENTICATED": "1",
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_DAEMON_JAVA_OPTS": JVM,
    }
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
            yield Cluster(address, environment)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


def executor_of(pid: int) -> psutil.Process:
    """The executor's JVM above a Python process."""
    above = psutil.Process(pid).parents()
    return next(each for each in above if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()))


def below(process: psutil.Process, pids: list[int]) -> set[int]:
    return {each.pid for each in process.children(recursive=True)} & set(pids)


@contextmanager
def running(
    cluster: Cluster, workload: str, directory: Path, seconds: str, **options: object
) -> Iterator[subprocess.Popen[str]]:
    """The program with a job of its own; it is gone afterwards, however the test ends."""
    arguments = [workload, str(directory), str(RATE), seconds, json.dumps({"master": cluster.master, **options})]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=cluster.environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> Iterator[Told]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def until(told: Iterator[Told], condition: Callable[[Told], bool], what: str) -> Told:
    """The first word of the job that the condition holds for."""
    deadline = monotonic() + WAIT_S
    for each in told:
        assert "report" not in each, f"the job ended before {what}"
        if condition(each):
            return each
        assert monotonic() < deadline, f"waited in vain until {what}; last: {each}"
    raise AssertionError(f"the job failed before {what}")


def order(job: subprocess.Popen[str], what: str) -> None:
    assert job.stdin is not None
    job.stdin.write(f"{what}\n")
    job.stdin.flush()


def test_fewer_cores_than_workers_are_said_before_the_start(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster, "yahoo", tmp_path, str(SECONDS), parallelism=6) as job:
        told = said(job)
        needed = "cores: 6 are needed, the cluster offers 4"
        now = until(told, lambda now: needed in now["waiting"], "the missing cores are named")
        assert now["waiting"][0].endswith("of 6 to start")
        order(job, "stop")
        report = list(told)[-1]["report"]
        assert job.wait(60) == 0
    assert report["events_in"] == 0


def test_an_executor_is_lost_and_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    workload, parallelism = WORKLOADS["yahoo"], 3
    with running(cluster, "yahoo", tmp_path, str(SECONDS), parallelism=parallelism) as job:
        told = said(job)
        ready = until(told, lambda now: now["epoch"] >= 2 and len(now["workers"]) == parallelism, "two epochs")
        executor_of(ready["workers"][0]).kill()
        report = list(told)[-1]["report"]
        assert job.wait(60) == 0
    assert report["recoveries"] >= 1
    exact = workload.expected(replay(workload.source(RATE, seconds=SECONDS), report["start_us"]))
    assert workload.compare(exact, read_rows(tmp_path / "out"), parallelism).exact
    assert report["events_in"] == RATE * SECONDS
    assert (report["lost"], report["duplicated"], report["reordered"], report["late"]) == (0, 0, 0, 0)


def test_an_executor_with_a_worker_and_a_slot_is_lost_in_batch_form(cluster: Cluster, tmp_path: Path) -> None:
    """Three workers and a slot fill the cluster, so the slot's executor has a worker too: both are lost at once."""
    workload = WORKLOADS["yahoo-updates"]
    options = {"parallelism": 3, "slots": 1, "group_size": 10, "forms": "batch"}
    with running(cluster, "yahoo-updates", tmp_path, "", **options) as job:
        told = said(job)

        def at_work(now: Told) -> bool:
            return now["forms"].get("count.combine") == "batch" and bool(now["slots"]) and len(now["workers"]) == 3

        ready = until(
            told, lambda now: at_work(now) and now["epoch"] >= 1 and now["groups"], "a group has done its work"
        )
        victim = executor_of(ready["slots"][-1])
        slots, workers = below(victim, ready["slots"]), below(victim, ready["workers"])
        assert slots
        assert workers
        victim.kill()

        def made_good(now: Told) -> bool:
            gone = (slots | workers) & {*now["slots"], *now["workers"]}
            return at_work(now) and not gone and now["recoveries"] >= 1 and now["groups"][-1] > ready["groups"][-1]

        again = until(told, made_good, "another group has done its work")
        until(told, lambda now: now["epoch"] > again["epoch"] + 1, "more epochs are committed")
        order(job, "drain")
        report = list(told)[-1]["report"]
        assert job.wait(60) == 0
    read = report["offsets"]["events"]
    exact = workload.expected(replay(workload.source(RATE), report["start_us"], read))
    found = workload.compare(exact, read_rows(tmp_path / "out"), len(read))
    assert found.exact, found
    assert report["events_in"] == sum(read)
    assert (report["lost"], report["duplicated"], report["reordered"], report["late"]) == (0, 0, 0, 0)
