"""A real standalone cluster with several executors, each in a network of its own where that is allowed: one is lost.

The job runs in a process of its own, because this one's Spark is the embedded one. It tells how it is in lines of JSON,
and reads until it is told to drain: nothing ends before the loss has been seen and made good.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
import pytest

from penstock.runtime.packing import pack_environment
from penstock_bench.meter.job import read_rows
from penstock_bench.workloads import WORKLOADS, replay
from standalone import Cluster, cluster_of_two
from waiting import WAIT_S

pytestmark = pytest.mark.spark

RATE = 2_000
PROGRAM = """
import sys, threading
from dataclasses import replace
import msgspec, penstock as ps
from penstock.runtime.job import Job, plan_of
from penstock_bench.workloads import WORKLOADS
from pyspark import SparkContext
directory, rate, options, silence_us = sys.argv[1:]
pipeline = WORKLOADS["yahoo-updates"].pipeline(float(rate), ps.files(directory + "/out"))
plan = plan_of(pipeline, checkpoint=directory + "/checkpoint", name="cluster", **msgspec.json.decode(options))
job = Job(replace(plan, options=replace(plan.options, silence_us=int(silence_us))))
def obey():
    {"drain": job.drain, "stop": job.stop}[sys.stdin.readline().strip()]()
threading.Thread(target=obey, daemon=True).start()
def tell(**what):
    print(msgspec.json.encode(what).decode(), flush=True)
spark = SparkContext._active_spark_context._jsc.sc().statusTracker()
while (report := job.wait(0.1)) is None:
    status = job.status()
    tell(
        epoch=status.epoch,
        recoveries=status.recoveries,
        workers=[each.pid for each in status.workers],
        slots=status.slots,
        placement=status.placement,
        waiting=status.waiting,
        forms={each.name: each.form for each in status.operations},
        groups=[each.group for each in job.adaptation().groups],
        cores=sum(each.numRunningTasks() for each in spark.getExecutorInfos()),
    )
tell(report=report)
"""
Told = dict[str, Any]
"""What the program says of its job."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of_two(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def executor_of(pid: int) -> psutil.Process:
    """The executor's JVM above a Python process."""
    above = psutil.Process(pid).parents()
    return next(each for each in above if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()))


def below(process: psutil.Process, pids: list[int]) -> set[int]:
    return {each.pid for each in process.children(recursive=True)} & set(pids)


@contextmanager
def running(
    cluster: Cluster, directory: Path, *, silence_s: int = 30, **options: object
) -> Iterator[subprocess.Popen[str]]:
    """The program with a job of its own; it is gone afterwards, however the test ends."""
    arguments = [str(directory), str(RATE), json.dumps({"master": cluster.master, **options}), str(silence_s * 10**6)]
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


def assert_exact(out: Path, report: Told) -> None:
    """Every event that was read is counted once, in order."""
    workload, read = WORKLOADS["yahoo-updates"], report["offsets"]["events"]
    exact = workload.expected(replay(workload.source(RATE), report["start_us"], read))
    found = workload.compare(exact, read_rows(out), len(read))
    assert found.exact, found
    assert report["events_in"] == sum(read)
    assert (report["lost"], report["duplicated"], report["reordered"], report["late"]) == (0, 0, 0, 0)


def order(job: subprocess.Popen[str], what: str) -> None:
    assert job.stdin is not None
    job.stdin.write(f"{what}\n")
    job.stdin.flush()


def test_fewer_cores_than_workers_are_said_before_the_start(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster, tmp_path, parallelism=6) as job:
        told = said(job)
        needed = "cores: 6 are needed, the cluster offers 4"
        now = until(told, lambda now: needed in now["waiting"], "the missing cores are named")
        assert now["waiting"][0].endswith("of 6 to start")
        order(job, "stop")
        report = list(told)[-1]["report"]
        assert job.wait(WAIT_S) == 0
    assert report["events_in"] == 0


def test_a_calm_job_holds_one_core_besides_those_of_its_workers(cluster: Cluster, tmp_path: Path) -> None:
    """As Spark counts them on its executors: a task holds a core; two of the four are left to others."""
    calm = deque[Told](maxlen=10)

    def holds_two(now: Told) -> bool:
        calm.append(now)
        held = [(each["cores"], len(each["workers"]), len(each["slots"])) for each in calm]
        return now["epoch"] >= 1 and held == [(2, 1, 1)] * 10

    with running(cluster, tmp_path, parallelism=1) as job:
        until(said(job), holds_two, "a worker and a slot hold a core each for a while")
        order(job, "stop")
        assert job.wait(60) == 0


def test_an_executor_is_lost_and_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    """The driver listens everywhere, and is found at the address that is given."""
    parallelism, first = 3, 20_000 + os.getpid() % 20_000
    addresses = {"driver_address": cluster.address, "bind_address": "0.0.0.0", "ports": f"{first}-{first + 200}"}
    with running(cluster, tmp_path, parallelism=parallelism, **addresses) as job:
        told = said(job)
        ready = until(told, lambda now: now["epoch"] >= 2 and len(now["workers"]) == parallelism, "two epochs")
        networks = {Path(f"/proc/{pid}/ns/net").readlink() for pid in ready["workers"]}
        executor_of(ready["workers"][0]).kill()
        again = until(told, lambda now: now["recoveries"] >= 1, "its loss is noticed")
        until(told, lambda now: now["epoch"] > again["epoch"] + 1, "more epochs are committed")
        order(job, "drain")
        report = list(told)[-1]["report"]
        assert job.wait(WAIT_S) == 0
    assert_exact(tmp_path / "out", report)
    if cluster.alone:
        pytest.skip(f"exact, but on one address: {cluster.alone}")
    assert len(networks) == 2
    assert Path("/proc/self/ns/net").readlink() not in networks


SHIPPED = """
import sys
import penstock as ps
from beside import factor       # a package beside the program, with a data file
from inside import twice        # of an archive
from single import once
def compute(row):
    import late                 # imported by a worker alone, when it has gone to the program's directory
    from pyspark import SparkFiles
    with open(SparkFiles.get("add.txt")) as file:
        added = int(file.read())
    return factor() * twice(once(row.n)) + added + late.ZERO, sys.prefix
numbers = ps.stream("numbers", ps.records([(n,) for n in range(50)], schema="n bigint"))
pipeline = numbers.map(compute, schema="n bigint, prefix string").to(ps.files(sys.path[0] + "/out"))
"""


def test_modules_files_and_a_packed_environment_reach_the_executors(cluster: Cluster, tmp_path: Path) -> None:
    """The workers run an unpacked Python, whose path has nothing of the user's but what was sent."""
    program = tmp_path / "program"
    for path, text in {
        "program/job.py": SHIPPED,
        "program/beside/__init__.py": "from pathlib import Path\nfactor = lambda: "
        "int((Path(__file__).parent / 'deep' / 'factor.txt').read_text())",
        "program/beside/deep/factor.txt": "7",
        "program/late.py": "ZERO = 0",
        "single.py": "once = lambda n: n",
        "add.txt": "5",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with zipfile.ZipFile(tmp_path / "inside.zip", "w") as packed:
        packed.writestr("inside/__init__.py", "from inside.deep import twice")
        packed.writestr("inside/deep.py", "twice = lambda n: 2 * n")
    penstock = str(Path(sys.executable).with_name("penstock"))
    archive = tmp_path / "environment.tar.gz"
    pack_environment(archive, only=["penstock"], level=0)
    sent = ["--py-files", f"{tmp_path}/inside.zip,{tmp_path}/single.py", "--files", f"{tmp_path}/add.txt"]
    options = ["--master", cluster.master, "--parallelism", "1", "--forms", "record", "--environment", archive]
    command = [penstock, "run", program / "job.py", *options, *sent]
    done = subprocess.run(command, env=cluster.environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = read_rows(program / "out")
    assert sorted(row["n"] for row in rows) == [14 * n + 5 for n in range(50)]
    (prefix,) = {row["prefix"] for row in rows}
    assert Path(prefix).is_relative_to(cluster.work)
    assert Path(prefix).name == "environment"


def test_an_executor_with_a_worker_and_a_slot_is_lost_in_batch_form(cluster: Cluster, tmp_path: Path) -> None:
    """Three workers and a slot fill the cluster, so the slot's executor has a worker too: both are lost at once."""
    options = {"parallelism": 3, "slots": 1, "group_size": 10, "forms": "batch"}
    with running(cluster, tmp_path, **options) as job:
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
        assert job.wait(WAIT_S) == 0
    assert_exact(tmp_path / "out", report)


def test_a_machine_is_lost_for_good_and_the_others_take_over_what_it_had(cluster: Cluster, tmp_path: Path) -> None:
    """Three workers on four cores, of which two go: the job shrinks to two workers instead of waiting for a third."""
    options = {"parallelism": 3, "forms": "record", "shrink_after": "4s", "epoch": "500ms"}
    with running(cluster, tmp_path, silence_s=3, **options) as job:
        told = said(job)
        ready = until(told, lambda now: now["epoch"] >= 2 and len(now["workers"]) == 3, "two epochs")
        assert len(set(ready["placement"])) == 3
        executors = {executor_of(pid).pid for pid in ready["workers"]}
        assert len(executors) == 2
        with cluster.without_the_last() as killed:
            gone = killed & set(ready["workers"])
            assert 1 <= len(gone) <= 2, "a part of the workers was there"

            def has_shrunk(now: Told) -> bool:
                return len(set(now["placement"])) == 2 == len(set(now["workers"]) - gone) == len(now["workers"])

            shrunk = until(told, has_shrunk, "two workers have all instances")
            assert shrunk["recoveries"] >= 1

            def goes_on(now: Told) -> bool:
                waits = any(each.startswith("worker") for each in now["waiting"])
                return has_shrunk(now) and now["epoch"] > shrunk["epoch"] + 2 and not waits

            until(told, goes_on, "more epochs are committed, and nobody is waited for")
            order(job, "drain")
            report = list(told)[-1]["report"]
            assert job.wait(WAIT_S) == 0
    assert_exact(tmp_path / "out", report)
    assert report["recoveries"] >= 1
