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


def make(package: Path) -> None:
    for name, text in {"engine/unit.py": "x = 1\n", "engine/wire.py": "msgspec.Struct\n", "metrics/a.py": ""}.items():
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
    (package / "engine" / "wire.py").write_text("msgspec.Struct\nmore = 1\n")  # is not compiled
    assert compiled.are_current(package)
    (package / "engine" / "unit.py").write_text("x = 2\n")
    assert not compiled.are_current(package)
    make(package)
    assert compiled.are_current(package)
    (package / "engine" / "unit.py").rename(package / "engine" / "line.py")
    assert not compiled.are_current(package)
