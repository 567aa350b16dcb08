"""Real faults on real Spark: workers killed or suspended, a killed driver, damaged checkpoints; exact output."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest
from penstock_test_sinks import SlowToRestore

import penstock as ps
from penstock.demo.chaos import Campaign, Killer
from penstock.errors import CheckpointDamaged, CheckpointMismatch, SinkFailed
from penstock.runtime.clock import now_us
from penstock.runtime.job import Job, plan_of
from penstock.runtime.report import Report
from penstock_bench.meter.job import read_rows
from penstock_bench.workloads import WORKLOADS, replay
from waiting import WAIT_S

pytestmark = pytest.mark.spark

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
YAHOO = WORKLOADS["yahoo-updates"]
"""A row for every count that changes: a loss, a repetition or a wrong order anywhere shows."""
Eventually = Callable[[Callable[[], object]], None]


def assert_exact(out: Path, report: Report, rate_eps: float) -> None:
    """Every event that was read is counted once, in order; nothing uncommitted is left."""
    read = report.offsets["events"]
    exact = YAHOO.expected(replay(YAHOO.source(rate_eps), report.start_us, read))
    found = YAHOO.compare(exact, read_rows(out), len(read))
    assert found.exact, found
    assert report.total is not None
    assert report.total.events_in == sum(read)
    assert (report.lost, report.duplicated, report.reordered, report.late) == (0, 0, 0, 0)
    assert report.epochs > 0
    assert [path.name for path in (out / ".pending").iterdir() if path.name != "lock"] == []


def pids(job: Job) -> dict[int, int]:
    return {worker.worker: worker.pid for worker in job.status().workers}


def going_on(job: Job, since_us: int) -> bool:
    """Whether a recovery was completed after that time, and an epoch committed after it."""
    status = job.status()
    return since_us < status.resumed_us < status.committed_us


def wait_for_more(job: Job, eventually: Eventually) -> None:
    """Wait until more events were read than ever before."""

    def read() -> int:
        return sum(each.records_in for each in job.status().operations if each.kind == "generator")

    before = read()
    eventually(lambda: read() > before)


def lose(job: Job, worker: int, eventually: Eventually) -> None:
    """Kill a worker that has got ahead, and wait until its successor has been told to go on."""
    wait_for_more(job, eventually)
    lost, killed_us = pids(job)[worker], now_us()
    os.kill(lost, signal.SIGKILL)
    eventually(lambda: pids(job)[worker] != lost and job.status().resumed_us > killed_us)


def test_workers_killed_at_random_times(tmp_path: Path, eventually: Eventually) -> None:
    rate_eps, seed = 10_000, int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    campaign = Campaign(seed, 1_400_000)
    kill = Killer(campaign)

    def gone_on_after_three() -> bool:
        kill(job)
        return len(campaign.kills) >= 3 and all(each.resumed_s is not None for each in campaign.kills)

    with ps.start(YAHOO.pipeline(rate_eps, ps.files(tmp_path)), parallelism=2, name="kills") as job:
        eventually(gone_on_after_three)
        job.drain()
        report = job.wait()
    found = campaign.findings(report)
    assert_exact(tmp_path, report, rate_eps)
    assert found.passed, found
    assert report.recoveries >= 2


def test_two_of_three_workers_killed_at_once(tmp_path: Path, eventually: Eventually) -> None:
    rate_eps = 5_000
    with ps.start(YAHOO.pipeline(rate_eps, ps.files(tmp_path)), parallelism=3, name="two") as job:
        eventually(lambda: job.status().epoch >= 1 and len(pids(job)) == 3)
        before, killed_us = pids(job), now_us()
        for worker in (0, 2):
            os.kill(before[worker], signal.SIGKILL)
        eventually(lambda: going_on(job, killed_us) and all(pids(job)[worker] != before[worker] for worker in (0, 2)))
        job.drain()
        report = job.wait()
        assert pids(job)[1] == before[1]
    assert_exact(tmp_path, report, rate_eps)


def test_a_worker_killed_while_it_is_being_recovered(tmp_path: Path, eventually: Eventually) -> None:
    rate_eps = 5_000
    plan = plan_of(YAHOO.pipeline(rate_eps, ps.files(tmp_path)), parallelism=2, name="again")
    with Job(replace(plan, options=replace(plan.options, silence_us=int(WAIT_S * 1e6)))) as job:
        eventually(lambda: job.status().epoch >= 1 and len(pids(job)) == 2)
        lost, other = pids(job).values()
        # The recovery cannot be completed while the other worker does not answer.
        os.kill(other, signal.SIGSTOP)
        try:
            os.kill(lost, signal.SIGKILL)
            eventually(lambda: pids(job)[0] != lost)
            successor = pids(job)[0]
            os.kill(successor, signal.SIGKILL)
            eventually(lambda: pids(job)[0] != successor)
            status = job.status()
            assert (status.recoveries, status.resumed_us) == (2, 0)
        finally:
            os.kill(other, signal.SIGCONT)
        eventually(lambda: going_on(job, 0))
        job.drain()
        report = job.wait()
    assert report.recoveries == 2
    assert_exact(tmp_path, report, rate_eps)


def test_kills_that_come_faster_than_commits(tmp_path: Path, eventually: Eventually) -> None:
    rate_eps, kills = 2_000, 4
    pipeline = YAHOO.pipeline(rate_eps, ps.files(tmp_path))
    with ps.start(pipeline, parallelism=2, epoch="1h", name="faster") as job:
        eventually(lambda: len(pids(job)) == 2)
        note = Path(job.plan.options.checkpoint) / "suspects" / "worker-0.note"
        for number in range(1, kills + 1):
            lose(job, 0, eventually)
            assert job.status().recoveries == number
            # Lost twice without a commit: from then on every record is noted before it is handled.
            assert note.exists() == (number > 1)
        assert job.status().epoch == 0
        wait_for_more(job, eventually)
        job.drain()
        report = job.wait()
    assert report.recoveries == kills
    assert_exact(tmp_path, report, rate_eps)
    assert report.skipped == report.dead_letters == 0


def test_nothing_is_accepted_from_a_worker_that_was_suspended_and_replaced(
    tmp_path: Path, eventually: Eventually
) -> None:
    rate_eps = 5_000
    plan = plan_of(YAHOO.pipeline(rate_eps, ps.files(tmp_path)), parallelism=2, name="suspended")
    with Job(replace(plan, options=replace(plan.options, silence_us=3_000_000))) as job:
        eventually(lambda: job.status().epoch >= 1 and len(pids(job)) == 2)
        suspended = pids(job)[0]
        os.kill(suspended, signal.SIGSTOP)
        try:
            eventually(lambda: pids(job)[0] != suspended and going_on(job, 0))
            refused = job._driver._machine.scheduler.refused_messages
        finally:
            os.kill(suspended, signal.SIGCONT)
        # It had work in its queues and a heartbeat to send; it speaks before it hears that it is to stop.
        eventually(lambda: job._driver._machine.scheduler.refused_messages > refused)
        epoch = job.status().epoch
        eventually(lambda: job.status().epoch > epoch)
        assert pids(job)[0] != suspended
        job.drain()
        report = job.wait()
    assert report.recoveries >= 1
    assert_exact(tmp_path, report, rate_eps)


BACK = """
import os, signal, threading, time
from dataclasses import replace
import penstock as ps
from penstock.runtime.job import Job, plan_of
from penstock_bench.workloads import WORKLOADS

def eventually(condition):
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline, job.status().waiting
        threading.Event().wait(0.05)

def pids():
    return {worker.worker: worker.pid for worker in job.status().workers}

pipeline = WORKLOADS["yahoo"].pipeline(2_000, ps.files("out"))
plan = plan_of(pipeline, parallelism=2, master="local[2]", forms="record", name="back")
with Job(replace(plan, options=replace(plan.options, silence_us=3_000_000))) as job:
    eventually(lambda: job.status().epoch >= 1 and len(pids()) == 2)
    before = pids()
    os.kill(before[0], signal.SIGSTOP)
    try:
        eventually(lambda: any("another process was ordered" in each for each in job.status().waiting))
    finally:
        os.kill(before[0], signal.SIGCONT)
    eventually(lambda: job.status().waiting == [])
    epoch = job.status().epoch
    eventually(lambda: job.status().epoch > epoch)
    job.drain()
    report = job.wait()
    assert pids() == before
assert (report.recoveries, report.lost, report.duplicated) == (0, 0, 0), report
assert report.events_in == sum(report.offsets["events"]), report
"""


def test_a_worker_that_is_back_before_another_one_finds_a_core_is_not_replaced(tmp_path: Path) -> None:
    """Two workers fill the cluster, so it has one of its own: the ordered process waits, its order is withdrawn."""
    done = subprocess.run([sys.executable, "-c", BACK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


PROGRAM = """
import sys
import penstock as ps
from penstock_bench.workloads import WORKLOADS
pipeline = WORKLOADS["yahoo-updates"].pipeline(5_000, ps.files("out", existing="fail"))
report = ps.run(pipeline, parallelism=2, checkpoint="checkpoint", name="restarted", duration=sys.argv[1])
import msgspec
sys.stdout.buffer.write(msgspec.json.encode(report))
"""


def test_a_killed_driver_leaves_no_process_and_goes_on_when_it_is_started_again(
    tmp_path: Path, eventually: Eventually
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    def start(duration: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "program.py", duration],
            cwd=tmp_path,
            env={**os.environ, "PENSTOCK_STATE": str(tmp_path / "state")},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    first = start("1h")
    orphans: list[psutil.Process] = []
    try:
        eventually(lambda: len(list(tmp_path.glob("out/part-*"))) >= 4)
        orphans = psutil.Process(first.pid).children(recursive=True)
        assert len(orphans) >= 4  # the JVM, pyspark's daemon, two workers
    finally:
        first.kill()
        first.communicate()
    second = start("1s")  # at once: the orphans may still be there
    out, _ = second.communicate()
    assert second.returncode == 0
    _, alive = psutil.wait_procs(orphans, timeout=WAIT_S)
    assert not alive
    report = msgspec.json.decode(out, type=Report)
    assert report.recoveries == 1
    assert_exact(tmp_path / "out", report, 5_000)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, spark: None) -> Path:
    """The checkpoint of a job that has ended."""
    directory = tmp_path_factory.mktemp("checkpoint")
    ps.run(words(), checkpoint=directory, parallelism=2, name="words")
    return directory


def words(**more: ps.Column) -> ps.Pipeline:
    rows = [{"word": f"w{i % 7}"} for i in range(100)]
    stream = ps.stream("words", ps.records(rows, schema="word string"))
    for name, column in more.items():
        stream = stream.filter(column, name=name)
    return stream.key_by("word").count().to(ps.memory())


@pytest.mark.parametrize(
    ("kind", "damage"),
    [("commits", "flip"), ("commits", "cut"), ("snapshots", "flip"), ("snapshots", "cut"), ("snapshots", "remove")],
)
def test_a_damaged_checkpoint_is_refused_by_the_name_of_the_file(
    checkpoint: Path, tmp_path: Path, kind: str, damage: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    commit = max((copy / "commits").iterdir())
    if kind == "commits":
        path = commit
    else:
        named = json.loads(commit.read_bytes().split(b"\n")[1])["snapshots"]
        path = copy / "snapshots" / named[-1][4]
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes(data if damage == "flip" else data[: len(data) // 2])
    if damage == "remove":
        path.unlink()
    with pytest.raises(CheckpointDamaged) as raised:
        ps.run(words(), checkpoint=copy, parallelism=2, name="words")
    assert str(path) in str(raised.value)


def into(directory: Path) -> ps.Pipeline:
    lines = [b'{"n": %d}' % n for n in range(100)] + [b"oops"]
    parsed = ps.stream("lines", ps.records(lines, schema="value binary")).parse_json("n int", on_error="dead_letter")
    return parsed.to(ps.files(directory / "out"), dead_letters=ps.files(directory / "dead"))


def test_a_finished_job_started_again_adds_nothing_and_an_older_checkpoint_is_refused(tmp_path: Path) -> None:
    options = {"checkpoint": tmp_path / "checkpoint", "parallelism": 2, "name": "older", "epoch": "10ms"}
    for run in range(2):
        report = ps.run(into(tmp_path), **options)
        own = (101, 100, 1) if run == 0 else (0, 0, 0)
        assert (report.events_in, report.results_out, report.dead_letters) == own, "a run's figures are its own"
        assert report.total is not None
        assert (report.total.runs, report.total.events_in, report.total.results_out) == (run + 1, 101, 100)
        assert (report.latency_ms is None) == (run == 1)
        assert sorted(row["n"] for row in read_rows(tmp_path / "out")) == list(range(100))
        assert len(read_rows(tmp_path / "dead")) == 1
    newest = max((tmp_path / "out").glob("part-*"))
    newest.rename(newest.with_name(f"part-{report.epochs + 1:08d}-0000.jsonl"))
    with pytest.raises(SinkFailed, match=rf"part-{report.epochs + 1:08d}-0000.jsonl' is newer than the checkpoint"):
        ps.run(into(tmp_path), **options)


def test_another_pipeline_is_refused_with_the_difference(checkpoint: Path) -> None:
    rows = ps.records([{"word": f"w{i % 7}"} for i in range(100)], schema="word string")
    other = ps.stream("words", rows).key_by("word").aggregate(longest=ps.agg.max("word"), name="count")
    with pytest.raises(CheckpointMismatch, match=r"'count' was count=count\(\) by word .* now longest=max"):
        ps.run(other.to(ps.memory()), checkpoint=checkpoint, parallelism=2, name="words")


def test_another_parallelism_goes_on_from_the_same_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, copy)
    report = ps.run(words(), checkpoint=copy, parallelism=1, name="words")
    assert report.events_in == 0, "everything had been read"
    assert report.total is not None
    assert report.total.events_in == 100


def test_chaos_reports_kills_recoveries_and_the_oracle(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import penstock as ps\n"
        "numbers = ps.generator({'n': ps.fields.sequence()}, rate=2_000, format='columns')\n"
        "pipeline = ps.stream('numbers', numbers).key_by('n').map(lambda r: (r.n,), schema='n bigint')"
        ".to(ps.files('out'))\n"
    )
    done = subprocess.run(
        [
            PENSTOCK,
            "chaos",
            "job.py",
            "--for",
            "4s",
            "--kill-every",
            "1500ms",
            "--switch-every",
            "700ms",
            "--seed",
            "3",
            "--json",
            "chaos.json",
        ],
        cwd=tmp_path,
        env={**os.environ, "PENSTOCK_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "chaos.json").read_bytes())
    numbers = [row["n"] for row in read_rows(tmp_path / "out")]
    read = told["offsets"]["numbers"]
    assert sorted(numbers) == sorted(n * len(read) + i for i, count in enumerate(read) for n in range(count))
    assert told["chaos"]["seed"] == 3
    assert len(told["chaos"]["kills"]) >= 1
    assert told["chaos"]["recoveries"] >= 1
    assert told["chaos"]["resumed_s"]["max"] > 0
    assert told["chaos"]["switches"] >= 1
    assert {line[:13].strip() for line in done.stdout.splitlines()} >= {"kills", "recoveries", "output again", "lost"}


def test_chaos_with_rescales_judges_its_own_pipeline_by_what_it_has_written(tmp_path: Path) -> None:
    """Kills, changes of form, of workers and of replicas at once; every record is compared."""
    given = ["--for", "6s", "--kill-every", "2s", "--scale-every", "1s", "--switch-every", "1s", "--seed", "4"]
    done = subprocess.run(
        [PENSTOCK, "chaos", *given, "--json", "chaos.json"],
        cwd=tmp_path,
        env={**os.environ, "PENSTOCK_STATE": str(tmp_path / "state"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "chaos.json").read_bytes())
    found, planned = told["chaos"], told["chaos"]["planned"]
    assert planned.keys() == {"kills", "switches", "rescales"}
    assert len(found["rescales"]) >= planned["rescales"] >= 2
    assert len(found["kills"]) >= planned["kills"] >= 1
    assert {each["what"] for each in found["rescales"]} > {"workers"}, "replicas too"
    assert all(each["committed_s"] for each in found["rescales"])
    verdict = found["verdict"]
    assert verdict.pop("records") == told["events_in"] == sum(map(sum, told["offsets"].values())) > 0
    assert set(verdict.values()) == {0}
    assert not list(tmp_path.glob("penstock-chaos-*")), "output that is right is not kept"


def test_a_restore_that_takes_longer_than_silence_is_allowed_is_waited_for(eventually: Eventually) -> None:
    """As gigabytes of state do: the worker says meanwhile that it is there, and nobody is put in its place."""
    seconds, silence_us = 5.0, 3_000_000
    source = ps.generator({"n": ps.fields.sequence()}, rate=500, format="columns", partitions=2)
    pipeline = ps.stream("numbers", source).key_by("n").count().to(SlowToRestore(seconds))
    plan = plan_of(pipeline, parallelism=2, name="large", epoch="300ms")
    with Job(replace(plan, options=replace(plan.options, silence_us=silence_us))) as job:
        eventually(lambda: job.status().epoch >= 1 and len(pids(job)) == 2)
        lost, killed_us = pids(job)[1], now_us()
        os.kill(lost, signal.SIGKILL)
        eventually(lambda: going_on(job, killed_us))
        took_us = job.status().resumed_us - killed_us
        job.drain()
        report = job.wait()
    assert took_us > silence_us, "the test would show it"
    assert report is not None
    assert (report.recoveries, report.lost, report.duplicated) == (1, 0, 0)
