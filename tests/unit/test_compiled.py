"""The compiled modules: used while they are what the sources are; a job runs on them as on the sources."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import penstock as ps
from penstock import compiled

PACKAGE = Path(ps.__file__).parent
there = pytest.mark.skipif(not compiled.are_current(PACKAGE), reason="needs the compiled engine (make compile)")


def run(code: str, **environment: str) -> str:
    given = {name: value for name, value in os.environ.items() if name != compiled.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**given, **environment}
    )
    return done.stdout.strip()


@there
@pytest.mark.parametrize(("told", "ending"), [("", EXTENSION_SUFFIXES[0]), ("0", ".py")])
def test_a_process_runs_what_was_compiled_unless_it_is_told_not_to(told: str, ending: str) -> None:
    code = "from penstock.engine import passed, unit; print(unit.__file__, passed.__file__)"
    unit, passed = run(code, **{compiled.VARIABLE: told}).split()
    assert unit.endswith(ending)
    assert passed.endswith(".py")  # msgspec reads its members


@there
def test_a_job_under_faults_runs_on_compiled_modules() -> None:
    code = "import sys, penstock.engine.unit as unit; from penstock.testing.simulation.__main__ import main; "
    code += "assert not unit.__file__.endswith('.py'); sys.argv[1:] = ['--count', '60']; sys.exit(main())"
    assert run(code) == "60 seeds, 0 failed"


FOREIGN = """
import numpy as np
import penstock as ps
from penstock.connectors.base import SinkWriter, Source, SourceBatch, SourceReader
from penstock.types import Schema
from penstock.engine.chain import SinkOperator
SCHEMA = Schema.parse("n bigint")
class Reader(SourceReader):
    at = 0
    def wake_us(self, now_us): return None if self.at >= 10 else np.float64(now_us * 1.0)
    def poll(self, now_us, records_max):
        rows = tuple(SCHEMA.record_type(self.at + i) for i in range(min(3, 10 - self.at)))
        at, self.at = self.at, self.at + len(rows)
        self.offset = np.int64(self.at)
        return SourceBatch(rows, np.int64(now_us), at)
    def seek(self, position): self.at = position
    def position(self): return self.at
    def backlog_records(self, now_us): return np.float64(10 - self.at)
class Numbers(Source):
    schema, kind = SCHEMA, "numbers"
    def partitions(self, parallelism): return 1
    def reader(self, partition, partitions, start_us): return Reader()
class Writer(SinkWriter):
    def __init__(self) -> None:
        self.rows = []
    def write(self, rows): self.rows += rows
    @property
    def is_full(self): return []
    @property
    def is_blocked(self): return 0
    def uploads(self): return ()
    def commit(self, epoch):
        rows, self.rows = tuple(self.rows), []
        return rows

harness = ps.testing.Harness(ps.stream("n", Numbers()).filter(ps.col("n") % 2 == 0).to(ps.memory()))
harness.run()
sink = SinkOperator("out", "out", Writer(), SCHEMA)
sink._write([SCHEMA.record_type(1)])
print([row["n"] for row in harness.rows()], [row.n for row in sink.commit(1)], sink.uploads())
"""


@there
def test_a_connector_may_answer_with_what_only_counts_as_a_number_a_list_or_true() -> None:
    assert run(FOREIGN) == "[0, 2, 4, 6, 8] [1] []"


def make(package: Path) -> None:
    texts = {"engine/unit.py": "x = 1\n", "engine/wire.py": "msgspec.Struct\n", "metrics/a.py": ""}
    texts |= {"protocol/messages.py": "", "connectors/base.py": "", "errors.py": "", "runtime/job.py": ""}
    for name, text in texts.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)


def test_compiled_modules_are_current_until_a_source_of_theirs_is_another(tmp_path: Path) -> None:
    package = tmp_path / "penstock"
    make(package)
    assert not compiled.are_current(package)
    (tmp_path / f"{compiled.LIBRARY}{EXTENSION_SUFFIXES[0]}").touch()
    assert not compiled.are_current(package)
    (package / compiled.MANIFEST).write_text(compiled.state(package))
    assert compiled.are_current(package)
    assert list(compiled.sources(package)) == [package / "engine" / "unit.py", package / "metrics" / "a.py"]
    (package / "runtime" / "job.py").write_text("more = 1\n")  # nothing that is compiled uses it
    assert compiled.are_current(package)
    for other in ("engine/wire.py", "protocol/messages.py", "connectors/base.py"):  # not compiled, but checked against
        make(package)
        (package / other).write_text("msgspec.Struct\nmore = 1\n")
        assert not compiled.are_current(package), other
    make(package)
    (package / "engine" / "unit.py").write_text("x = 2\n")
    assert not compiled.are_current(package)
    make(package)
    assert compiled.are_current(package)
    (package / "engine" / "unit.py").rename(package / "engine" / "line.py")
    assert not compiled.are_current(package)


def test_libraries_of_which_some_are_missing_are_not_used(tmp_path: Path) -> None:
    package = tmp_path / "penstock"
    make(package)
    assert not compiled.are_there(package)
    (package / "metrics" / f"a{EXTENSION_SUFFIXES[0]}").touch()
    assert compiled.are_there(package)
    assert not compiled.are_current(package)
