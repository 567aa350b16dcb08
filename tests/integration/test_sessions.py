"""Spark sessions that the user has made, in processes of their own: used, or refused with what to set."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SESSION = """
import penstock as ps
from pyspark.sql import SparkSession
session = SparkSession.builder.master("{master}").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("OFF")
"""
RUN = """
import penstock as ps
rows = ps.memory()
numbers = ps.stream("numbers", ps.generator({"n": ps.fields.sequence()}, rate=100, format="columns"))
with ps.start(numbers.filter(ps.col("n") >= 0).to(rows), parallelism=2, name="guest") as job:
    while not job.ended and not (job.start_us and job.status().slots):
        job.wait(0.05)
    if not job.ended:
        print(session.range(100).selectExpr("sum(id)").collect()[0][0])
        job.drain()
    job.wait()
print(min(each.n for each in rows.rows))
"""
"""A job of the session's own runs while ours holds its workers and its slots."""


def run(program: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**known, "SPARK_LOCAL_IP": "127.0.0.1", "PENSTOCK_STATE": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def with_session(master: str) -> str:
    return SESSION.format(master=master) + RUN


def test_a_session_with_room_is_used_and_its_own_jobs_go_on(tmp_path: Path) -> None:
    done = run(with_session("local[4,10000]"), tmp_path, PYSPARK_PYTHON=sys.executable)
    assert done.stdout.split("\n")[-3:-1] == ["4950", "0"], done.stderr


def test_a_session_that_would_be_taken_over_whole_is_refused(tmp_path: Path) -> None:
    done = run(with_session("local[2]"), tmp_path, PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 1
    assert "it has 2 cores, and 3 are needed" in done.stderr
    assert "parallelism=1" in done.stderr
    assert 'set master "local[N,10000]"' in done.stderr


@pytest.fixture
def other_python(tmp_path: Path) -> str:
    """A Python of the same version, without any package but Spark's own."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("own", [True, False])
def test_workers_of_another_python_end_in_an_error_that_names_the_variable(
    tmp_path: Path, other_python: str, own: bool
) -> None:
    program = RUN if own else with_session("local[4,10000]")
    done = run(program, tmp_path, PYSPARK_PYTHON=other_python)
    assert done.returncode == 1
    shown = re.sub(r"\[Stage .*?\]", "", done.stderr)  # Spark's progress may come after it
    last = shown.strip().splitlines()[-1]
    assert "PYSPARK_PYTHON" in last, done.stderr
    assert "the workers cannot start" in last
