"""What a job, a sink and a pipeline show of themselves in a REPL or a notebook."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import penstock as ps
from penstock.control.monitor import OperationFigures, Status
from penstock.runtime.progress import Progress, screen


def figures(name: str, came: int, went: int) -> OperationFigures:
    numbers = {"in_eps": 0.0, "selectivity": 1.0, "service_us": 0.0, "skipped": 0, "retried": 0, "dead_letters": 0}
    totals = {"total_p50_ms": 0.0, "total_p99_ms": 0.0, "total_max_ms": 0.0}
    return OperationFigures(
        name=name,
        kind="map",
        form="record",
        instances=1,
        out_eps=1234.5,
        queue_records=7,
        p50_ms=1.234,
        p99_ms=9.876,
        records_in=came,
        records_out=went,
        late=0,
        **numbers,  # type: ignore[arg-type]
        **totals,
    )


def progress(**changes: Any) -> Progress:
    operations = [figures("a<b", 0, 5000), figures("out", 4000, 4000)]
    status = Status("demo", "running", 1, 2, 12.34, 11, 3.0, operations, [], **changes)
    return Progress.of(status, {"a<b"}, {"out"})


def test_the_text_is_a_line_for_the_job_and_one_for_each_operation() -> None:
    shown = repr(progress()).splitlines()
    assert shown[0] == "job 'demo' running for 12.3 s, epoch 11: 5,000 records in, 4,000 results out"
    assert shown[1].split()[:3] == ["operation", "form", "records"]
    assert shown[2].split() == ["a<b", "record", "0", "5,000", "1,234", "7", "1.23", "9.88", "0"]
    assert len({len(line) for line in shown[1:]}) == 1, "columns are aligned"


def test_what_it_waits_for_is_said() -> None:
    assert progress(waiting=["worker 1"]).headline.endswith("; waits for worker 1")


def test_the_table_escapes_names() -> None:
    table = progress()._repr_html_()
    assert "a&lt;b" in table
    assert "a<b" not in table
    assert table.count("<tr>") == 3


def test_a_notebook_has_one_display_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    display = ModuleType("IPython.display")
    display.display = lambda _, display_id: SimpleNamespace(update=drawn.append)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    draw = screen()
    draw(progress())
    draw(progress())
    assert drawn == [progress()] * 2


def test_elsewhere_a_line_comes_when_it_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    draw = screen()
    draw(progress())
    draw(progress())
    draw(progress(waiting=["cores"]))
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_sinks_pipelines_and_streams_say_what_they_are(tmp_path: Path) -> None:
    stream = ps.stream("numbers", ps.records([(1,)], schema="n int"))
    assert repr(ps.memory()) == "<memory sink>"
    assert repr(ps.files(tmp_path)) == f"<files sink at {tmp_path}>"
    assert repr(stream.filter("n > 0").to(ps.console(), name="out")) == "<Pipeline numbers | filter | out>"
    assert repr(stream) == "Stream(numbers: n int)"


def test_completion_shows_what_is_meant() -> None:
    stream = ps.stream("numbers", ps.records([(1,)], schema="n int"))
    assert {"filter", "join_asof", "limit", "schema"} <= set(dir(stream))
    assert not [name for name in [*dir(stream), *ps.Job.__dir__(object.__new__(ps.Job))] if name.startswith("_")]
    assert {"progress", "wait", "stop", "watch"} <= set(ps.Job.__dir__(object.__new__(ps.Job)))
