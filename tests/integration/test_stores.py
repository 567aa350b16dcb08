"""Sinks on real Spark when things go wrong: a keyed store through a kill, a disk that is full."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import PenstockError
from penstock_bench.workloads import WORKLOADS, replay

pytestmark = pytest.mark.spark


def test_a_keyed_store_is_exact_through_a_kill(tmp_path: Path, eventually) -> None:
    workload = WORKLOADS["wordcount"]
    database = tmp_path / "words.db"
    pipeline = workload.pipeline(2_500, ps.sqlite(database, "words", key="word"))
    with ps.start(pipeline, parallelism=2, name="store", epoch="300ms") as job:
        eventually(lambda: job.status().epoch >= 3)
        os.kill(job.status().workers[1].pid, signal.SIGKILL)
        eventually(lambda: job.status().committed_us > job.status().resumed_us > 0)
        job.drain()
        report = job.wait()
    read = report.offsets["events"]
    exact = workload.expected(replay(workload.source(2_500), report.start_us, read))
    with sqlite3.connect(database) as connection:
        assert dict(connection.execute("SELECT word, count FROM words")) == exact
    assert (report.events_in, report.lost, report.duplicated, report.reordered) == (sum(read), 0, 0, 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can make a small file system")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=False)
    if made.returncode:
        pytest.skip("this machine does not allow a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def lines_of(directory: Path) -> list[str]:
    return [line for path in sorted(directory.glob("part-*")) for line in path.read_text().splitlines()]


def test_a_full_disk_fails_cleanly_and_the_job_goes_on_when_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    fields = {"n": ps.fields.sequence(), "text": ps.fields.text(200)}
    total = 6_000
    source = ps.generator(fields, rate=6_000, total=total, format="columns", partitions=2)

    def pipeline(directory: Path) -> ps.Pipeline:
        return ps.stream("numbers", source).to(ps.files(directory), name="store")

    options = {"checkpoint": tmp_path / "checkpoint", "parallelism": 2, "epoch": "200ms", "name": "full"}
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    with pytest.raises(PenstockError, match="No space left") as raised:
        ps.run(pipeline(small_disk / "out"), **options)
    assert raised.value.operation == "store"
    for line in lines_of(small_disk / "out"):
        assert line.startswith('{"n":')
        assert line.endswith('"}')
    # Make room, on the same path: a larger disk in the place of the small one.
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    report = ps.run(pipeline(small_disk / "out"), **options)
    numbers = sorted(int(line.split(":")[1].split(",")[0]) for line in lines_of(small_disk / "out"))
    assert numbers == list(range(total))
    assert report.total.events_in == total
