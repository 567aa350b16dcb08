"""Reading users' files: which pipelines are found, what the file's own options do, how faults are told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.load import load
from penstock.cli.outcome import UserFault
from penstock.errors import PipelineFileRefused, UnknownColumn

HEAD = """
import penstock as ps
rows = ps.stream("rows", ps.records([(1,), (2,)], schema="n bigint"))
"""
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("PYTHONPATH", "")
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("penstock_file_") or name == "neighbour":
            del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "job.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def operations(path: Path, **options: object) -> set[str]:
    plan = load(path).plan(**options)
    return {op.name for unit in plan.units for op in unit.ops}


def test_every_module_level_pipeline_is_found_once(write: Write) -> None:
    path = write(HEAD + "a = rows.to(ps.memory(), name='a')\nb = rows.to(ps.memory(), name='b')\nc = a\nd = a + b\n")
    assert operations(path) == {"a", "b"}


def test_the_main_guard_is_not_entered(write: Write) -> None:
    path = write(HEAD + "p = rows.to(ps.memory())\nif __name__ == '__main__':\n    raise SystemExit('entered')\n")
    assert operations(path) == {"to_memory"}


@pytest.mark.parametrize("call", ["ps.run(p, duration='7s', name='mine', parallelism=3)", "ps.start(p, name='mine')"])
def test_a_call_at_import_is_captured_with_its_options_and_starts_nothing(write: Write, call: str) -> None:
    path = write(
        HEAD + f"p = rows.to(ps.memory(), name='p')\nq = rows.to(ps.memory(), name='q')\n{call}\nreached = 1/0\n"
    )
    loaded = load(path)
    assert loaded.options["name"] == "mine"
    assert loaded.duration == ("7s" if "run" in call else None)
    assert operations(path) == {"p"}


def test_a_broad_handler_in_the_file_does_not_swallow_the_capture(write: Write) -> None:
    path = write(HEAD + "try:\n    ps.run(rows.to(ps.memory()))\nexcept Exception:\n    pass\n")
    assert operations(path) == {"to_memory"}


def test_options_of_the_command_line_come_first(write: Write) -> None:
    loaded = load(write(HEAD + "ps.run(rows.to(ps.memory()), name='mine', parallelism=3)\n"))
    assert loaded.plan(parallelism=1, name=None).options.parallelism == 1
    assert loaded.plan(name="other").options.name == "other"
    assert loaded.plan().options.parallelism == 3


@pytest.mark.parametrize(("file", "job"), [("word count.py", "word-count"), ("é.py", "job"), ("a.b.py", "a.b")])
def test_the_job_is_named_after_the_file(write: Write, file: str, job: str) -> None:
    assert load(write(HEAD + "p = rows.to(ps.memory())\n", file)).plan().options.name == job


def test_neighbours_can_be_imported(write: Write) -> None:
    write("NAME = 'from-the-neighbour'\n", "neighbour.py")
    path = write(HEAD + "import neighbour\np = rows.to(ps.memory(), name=neighbour.NAME)\n")
    assert operations(path) == {"from-the-neighbour"}


def test_functions_of_the_file_travel_whole(write: Write) -> None:
    from pyspark import cloudpickle

    path = write(
        HEAD + "def double(r):\n    return (r.n * 2,)\np = rows.map(double, schema='n bigint').to(ps.memory())\n"
    )
    load(path)
    packed = cloudpickle.dumps(sys.modules["penstock_file_job"].double)
    del sys.modules["penstock_file_job"]
    assert cloudpickle.loads(packed).__name__ == "double"


@pytest.mark.parametrize(("name", "word"), [("missing.py", "does not exist"), (".", "is a directory")])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str, word: str) -> None:
    with pytest.raises(PipelineFileRefused, match=word):
        load(tmp_path / name)


def test_a_file_without_a_pipeline_is_refused_with_what_to_do(write: Write) -> None:
    with pytest.raises(PipelineFileRefused, match=r"defines no pipeline.*\.to\("):
        load(write("x = 1\n"))


@pytest.mark.parametrize("text", ["def broken(:\n", "x = '\0'\n", "# coding: nonsense\n"])
def test_what_is_no_python_is_refused(write: Write, text: str) -> None:
    with pytest.raises(UserFault, match="is not valid Python") as caught:
        load(write(text))
    assert "Error" in caught.value.shown


def test_a_fault_shows_the_users_lines_and_none_of_ours(write: Write) -> None:
    with pytest.raises(UserFault, match="ended with ZeroDivisionError") as caught:
        load(write("def f():\n    return 1 / 0\n\nf()\n"))
    shown = caught.value.shown
    assert 'job.py", line 2, in f' in shown
    assert shown.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "cli/load.py" not in shown


def test_an_error_of_the_builder_keeps_its_class_and_names_the_users_line(write: Write) -> None:
    with pytest.raises(UserFault, match="UNKNOWN_COLUMN") as caught:
        load(write(HEAD + "rows.select('m')\n"))
    assert isinstance(caught.value.error, UnknownColumn)
    assert "rows.select('m')" in caught.value.shown
    assert "penstock/pipeline" not in caught.value.shown


def test_a_file_that_ends_the_process_is_refused(write: Write) -> None:
    with pytest.raises(UserFault, match="ended with SystemExit"):
        load(write("import sys\nsys.exit(0)\n"))
