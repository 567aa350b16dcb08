"""The program itself on real Spark: exit codes, reports, interrupts as a terminal sends them, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import psutil
import pytest

from penstock.control.monitor import Status
from penstock.runtime.status import read_status

pytestmark = pytest.mark.spark

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
WAIT_S = 60.0
REPORT_KEYS = {"events_in", "results_out", "lost", "duplicated", "reordered", "late", "dead_letters", "latency_ms"}
REPORT_KEYS |= {"operations", "switches"}
ENDLESS = """
import penstock as ps
numbers = ps.generator({"n": ps.fields.sequence()}, rate=1_000, format="columns")
pipeline = ps.stream("numbers", numbers).to(ps.files("out"))
"""


class Program:
    """One `penstock` process in a process group of its own, as a shell would start it."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.state = directory / "state"
        environment = {**os.environ, "PENSTOCK_STATE": str(self.state)}
        self.process = subprocess.Popen(
            [PENSTOCK, *arguments],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.children: set[psutil.Process] = set()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while the program runs, and remember the processes below it."""
        deadline = monotonic() + WAIT_S
        while not condition():
            assert monotonic() < deadline, "the condition did not come true in time"
            assert self.process.poll() is None, f"ended too early: {self.process.communicate()}"
            threading.Event().wait(0.05)
        self.children |= set(psutil.Process(self.process.pid).children(recursive=True))

    def status(self) -> Status | None:
        return next(filter(None, map(read_status, self.state.glob("penstock/jobs/*.json"))), None)

    def running(self) -> bool:
        """Whether records have come as far as the last operation."""
        status = self.status()
        return status is not None and status.operations[-1].records_in > 0

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends it to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; no process may remain."""
        out, err = self.process.communicate(timeout=WAIT_S)
        _, alive = psutil.wait_procs(self.children, timeout=10)
        assert not alive
        assert not list(self.state.glob("penstock/jobs/*.json"))
        return self.process.returncode, out, err


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def start(*arguments: str) -> Program:
        started.append(Program(tmp_path, *arguments))
        return started[-1]

    yield start
    for program in started:
        if program.process.poll() is None:
            os.killpg(program.process.pid, signal.SIGKILL)
            program.process.communicate()


def figures(out: str) -> dict[str, str]:
    return {line[:13].strip(): line[13:].strip() for line in out.splitlines()}


def test_the_demo_is_exact_and_says_so(tmp_path: Path, start: Start) -> None:
    code, out, _ = start("demo", "--for", "3s", "--rate", "4000", "--json", "demo.json").end()
    report = json.loads((tmp_path / "demo.json").read_bytes())
    assert code == 0, out
    assert out.startswith("exact: ")
    assert report.keys() >= REPORT_KEYS
    assert report["latency_ms"].keys() >= {"p50", "p99", "max"}
    assert report["verified"]["exact"]
    assert report["events_in"] == sum(report["offsets"]["ad-events"]) > 0
    assert report["switches"] == []
    told = figures(out)
    assert told["events in"].split()[0] == f"{report['events_in']:,}"
    assert [told[name] for name in ("lost", "duplicated", "reordered", "late")] == ["0", "0", "0", "0"]
    assert "p50" in told["latency"]


def test_run_takes_bad_records_aside_and_finds_the_files_neighbours(tmp_path: Path, start: Start) -> None:
    (tmp_path / "neighbour.py").write_text("def double(n):\n    return 2 * n\n")
    (tmp_path / "job.py").write_text(
        "import penstock as ps\nimport neighbour\n"
        "lines = [b'{\"n\": %d}' % n for n in range(100)] + [b'oops']\n"
        "parsed = ps.stream('lines', ps.records(lines, schema='value binary'))"
        ".parse_json('n bigint', on_error='dead_letter')\n"
        "doubled = parsed.map(lambda r: (neighbour.double(r.n),), schema='n bigint').to(ps.files('out'))\n"
        "ps.run(doubled, name='own-name')\n"
        "raise SystemExit('the command line starts the job, not the file')\n"
    )
    code, out, err = start("run", "job.py", "--dead-letters", "dead", "--json", "r.json", "--parallelism", "2").end()
    assert code == 0, err
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert report["job"] == "own-name"
    assert (report["events_in"], report["results_out"], report["dead_letters"]) == (101, 100, 1)
    rows = [json.loads(line)["n"] for path in tmp_path.glob("out/part-*") for line in path.read_text().splitlines()]
    assert sorted(rows) == [2 * n for n in range(100)]
    assert len(list(tmp_path.glob("dead/part-*"))) == 1
    assert figures(out)["dead letters"] == "1"


def test_a_failing_job_shows_the_users_traceback_and_ends_with_1(tmp_path: Path, start: Start) -> None:
    (tmp_path / "job.py").write_text(
        "import penstock as ps\n"
        "def invert(r):\n    return (1 // r.n,)\n"
        "p = ps.stream('rows', ps.records([(0,)], schema='n bigint')).map(invert, schema='n bigint').to(ps.memory())\n"
    )
    program = start("run", "job.py", "--json", "r.json")
    code, out, err = program.end()
    assert (code, out) == (1, "")
    shown = err[err.index("Traceback (most recent call last):") :]
    assert "return (1 // r.n,)" in shown
    assert shown.index("return") < shown.index("[OPERATION_FAILED] operation 'invert'")
    assert "penstock/engine" not in err
    assert not (tmp_path / "r.json").exists()


def test_ctrl_c_drains_and_commits_and_top_shows_the_job(tmp_path: Path, start: Start) -> None:
    (tmp_path / "job.py").write_text(ENDLESS)
    program = start("run", "job.py")
    program.until(program.running)
    shown = subprocess.run(
        [PENSTOCK, "top", "job", "--once"],
        env={**os.environ, "PENSTOCK_STATE": str(program.state)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "penstock job" in shown
    assert "to_files" in shown
    program.interrupt()
    code, out, err = program.end()
    assert code == 0, err
    assert "draining… Ctrl-C again stops at once" in err
    rows = [json.loads(line)["n"] for path in tmp_path.glob("out/part-*") for line in path.read_text().splitlines()]
    assert f"{len(rows):,}" == figures(out)["events in"].split()[0] == figures(out)["results out"]
    assert len(rows) == len(set(rows)) > 0


def test_ctrl_c_twice_stops_at_once_even_a_function_that_hangs(tmp_path: Path, start: Start) -> None:
    (tmp_path / "job.py").write_text(
        "import threading\nimport penstock as ps\n"
        "def hang(r):\n    open('hanging', 'w').close()\n    threading.Event().wait()\n"
        "p = ps.stream('rows', ps.records([(1,)], schema='n bigint')).map(hang, schema='n bigint').to(ps.memory())\n"
    )
    program = start("run", "job.py")
    program.until((tmp_path / "hanging").exists)
    program.interrupt()
    program.until(lambda: (status := program.status()) is not None and status.phase == "draining")
    before = monotonic()
    program.interrupt()
    code, out, err = program.end()
    assert (code, out) == (130, "")
    assert "stopping at once" in err
    assert "Traceback" not in err
    assert monotonic() - before < 20


def test_ctrl_c_while_spark_starts_leaves_nothing(tmp_path: Path, start: Start) -> None:
    (tmp_path / "job.py").write_text(ENDLESS)
    program = start("run", "job.py")
    below = psutil.Process(program.process.pid).children
    program.until(lambda: any("java" in child.name() for child in below(recursive=True)))
    program.interrupt()
    code, out, err = program.end()
    assert (code, out) == (130, "")
    assert "Traceback" not in err
