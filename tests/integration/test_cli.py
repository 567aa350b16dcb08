"""The program itself on real Spark: exit codes, reports, interrupts as a terminal sends them, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from penstock.control.monitor import Status
from penstock.runtime.status import read_status
from waiting import WAIT_S, wait_for

pytestmark = pytest.mark.spark

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
REPORT_KEYS = {"events_in", "results_out", "lost", "duplicated", "reordered", "late", "dead_letters", "latency_ms"}
REPORT_KEYS |= {"operations", "switches"}
SWITCH_KEYS = {"at_s", "operations", "to", "pause_ms", "total_ms", "carried_records", "reason", "inputs"}
ENDLESS = """
import penstock as ps
numbers = ps.generator({"n": ps.fields.sequence()}, rate=1_000, format="columns")
pipeline = ps.stream("numbers", numbers).to(ps.files("out"))
"""


class Program:
    """One `penstock` process in a process group of its own, as a shell would start it."""

    def __init__(self, directory: Path, *arguments: str, program: str = PENSTOCK) -> None:
        self.directory = directory
        self.state = directory / "state"
        environment = {**os.environ, "PENSTOCK_STATE": str(self.state)}
        self.process = subprocess.Popen(
            [program, *arguments],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while the program runs."""

        def holds() -> object:
            assert self.process.poll() is None, f"ended too early: {self.process.communicate()}"
            return condition()

        wait_for(holds)

    def all(self) -> list[psutil.Process]:
        """Every process that descends from the program, whoever its parent is by now."""
        mark = ("PENSTOCK_STATE", str(self.state))
        return [each for each in psutil.process_iter(["environ"]) if mark in (each.info["environ"] or {}).items()]

    def until_processes(self, condition: Callable[[list[psutil.Process]], bool]) -> None:
        """Wait for a condition of the program's processes."""

        def holds() -> bool:
            try:
                return condition(psutil.Process(self.process.pid).children(recursive=True))
            except psutil.Error:  # one of them has just ended
                return False

        self.until(holds)

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
        _, alive = psutil.wait_procs(self.all(), timeout=WAIT_S)
        assert not alive
        assert not list(self.state.glob("penstock/jobs/*.json"))
        return self.process.returncode, out, err


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def start(*arguments: str, **options: str) -> Program:
        started.append(Program(tmp_path, *arguments, **options))
        return started[-1]

    yield start
    for program in started:
        if program.process.poll() is None:
            os.killpg(program.process.pid, signal.SIGKILL)
            program.process.communicate()


def figures(out: str) -> dict[str, str]:
    return {line[:13].strip(): line[13:].strip() for line in out.splitlines()}


def test_the_demo_is_exact_and_says_so(tmp_path: Path, start: Start) -> None:
    options = ["--quick", "--seconds", "4", "--base", "2000", "--peak", "40000", "--out", "pictures"]
    code, out, err = start("demo", *options, "--json", "demo.json").end()
    report = json.loads((tmp_path / "demo.json").read_bytes())
    assert code == 0, (out, err)
    assert report.keys() >= REPORT_KEYS | {"verified", "scene", "runs", "components_ms"}
    assert report["latency_ms"].keys() >= {"p50", "p99", "max"}
    assert report["verified"]["exact"]
    # The schedule decides how many events there are: a third calm, a quarter of the time the burst, then calm again.
    assert report["events_in"] == sum(report["offsets"]["events"]) == report["verified"]["events"] == 46_000
    assert f"exact: {report['events_in']:,} events, each scored once, in order" in out
    (run,) = report["runs"]
    assert run["forms"] == "adaptive"
    assert [run["figures"][name] for name in ("lost", "duplicated", "reordered", "wrong")] == [0, 0, 0, 0]
    times = [each["at_s"] for each in run["series"]]
    assert times == sorted(set(times))
    assert run["series"][-1]["forms"].keys() == {"events", "score", "to_files"}
    for switch in report["switches"]:
        assert switch.keys() >= SWITCH_KEYS
    assert "<svg" in (tmp_path / "pictures" / "burst.html").read_text()
    assert "picture: pictures/burst.html" in out


def test_ctrl_c_ends_the_demo_after_the_run_that_it_drains(tmp_path: Path, start: Start) -> None:
    program = start("demo", "--seconds", "300", "--base", "1000", "--peak", "2000", "--json", "demo.json")
    program.until(program.running)
    program.interrupt()
    code, out, err = program.end()
    assert code == 0, (out, err)
    assert "the other runs are left out" in err
    report = json.loads((tmp_path / "demo.json").read_bytes())
    assert [each["forms"] for each in report["runs"]] == ["adaptive"]
    assert report["verified"]["exact"]
    assert 0 < report["events_in"] == report["verified"]["events"]
    assert "Traceback" not in err


def test_a_pinned_operation_switches_and_the_report_says_why(tmp_path: Path, start: Start) -> None:
    (tmp_path / "job.py").write_text(ENDLESS)
    # One partition: a drain finds several of them at different numbers.
    program = start("run", "job.py", "--parallelism", "1", "--pin", "numbers=batch", "--json", "r.json")
    program.until(lambda: (status := program.status()) is not None and status.switches)
    program.interrupt()
    code, out, err = program.end()
    assert code == 0, err
    (switch, *_) = json.loads((tmp_path / "r.json").read_bytes())["switches"]
    assert switch.keys() >= SWITCH_KEYS
    assert (switch["operations"], switch["to"], switch["reason"]) == (["numbers"], "batch", "pinned to batch form")
    assert "↑ batch  numbers" in err
    assert figures(out)["switches"].startswith("1 ")
    rows = [json.loads(line)["n"] for path in tmp_path.glob("out/part-*") for line in path.read_text().splitlines()]
    assert sorted(rows) == list(range(len(rows)))


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
    shown = err[err.index("[OPERATION_FAILED] operation 'invert'") :]
    assert shown.index("Traceback (most recent call last):") < shown.index("return (1 // r.n,)")
    assert "penstock/engine" not in err
    assert not (tmp_path / "r.json").exists()


def test_ctrl_c_drains_and_commits_and_top_shows_the_job(tmp_path: Path, start: Start) -> None:
    (tmp_path / "job.py").write_text(ENDLESS)
    program = start("run", "job.py", "--metrics", "prometheus:0")
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
    assert re.search(r"^metrics at http://127\.0\.0\.1:[1-9]\d*/metrics$", err, re.MULTILINE)
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
    program.interrupt()
    code, out, err = program.end()
    assert (code, out) == (130, "")
    assert "stopping at once" in err
    assert "Traceback" not in err


def scripts(processes: list[psutil.Process]) -> bool:
    """Whether Spark's scripts look for the JVM's options."""
    return any("bash" in each.name() for each in processes)


def jvm(processes: list[psutil.Process]) -> bool:
    """Whether the JVM has started."""
    return any("java" in each.name() for each in processes)


def context(processes: list[psutil.Process]) -> bool:
    """Whether the JVM listens and makes its Spark context."""
    return any("java" in each.name() and each.net_connections("tcp") for each in processes)


@pytest.mark.parametrize("interrupts", [1, 2])
@pytest.mark.parametrize("moment", [scripts, jvm, context])
def test_ctrl_c_while_spark_starts_ends_it_at_once_and_leaves_nothing(
    tmp_path: Path, start: Start, moment: Callable[[list[psutil.Process]], bool], interrupts: int
) -> None:
    (tmp_path / "job.py").write_text(ENDLESS)
    program = start("run", "job.py")
    program.until_processes(moment)
    for _ in range(interrupts):
        program.interrupt()
    code, out, err = program.end()
    assert (code, out, err) == (130, "", "interrupted\n")


def test_a_program_that_takes_ctrl_c_while_spark_starts_can_start_it_again(tmp_path: Path, start: Start) -> None:
    (tmp_path / "program.py").write_text(
        "import penstock as ps\n"
        "sink = ps.memory()\n"
        "numbers = ps.stream('numbers', ps.records([(7,)], schema='n bigint')).to(sink)\n"
        "try:\n    ps.run(numbers, parallelism=1)\n"
        "except KeyboardInterrupt:\n    ps.run(numbers, parallelism=1)\n    print('again', sink.dicts())\n"
    )
    program = start("program.py", program=sys.executable)
    program.until_processes(context)
    program.interrupt()
    code, out, err = program.end()
    assert (code, out) == (0, "again [{'n': 7}]\n"), err
