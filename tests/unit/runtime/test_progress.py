"""What a job, a sink and a pipeline show of themselves in a REPL or a notebook."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import penstock as ps
from penstock.control.monitor import OperationFigures, Status
from penstock.errors import PenstockError
from penstock.runtime.live import TABLES_MAX, Tables, notebook, screen
from penstock.runtime.progress import ROWS_MAX, Progress
from penstock.runtime.report import Latency, Report


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


def test_the_table_has_an_end_and_says_why_a_job_has_failed() -> None:
    status = Status("demo", "failed", 1, 2, 1.0, 1, 3.0, [figures(f"o{i}", 1, 1) for i in range(ROWS_MAX + 2)], [])
    shown = Progress.of(status, set(), set(), PenstockError("no <such> thing."))
    assert "and 2 operations more" in shown._repr_html_()
    assert "no &lt;such&gt; thing." in shown._repr_html_()
    assert repr(shown).endswith("no <such> thing.")
    assert shown.headline.startswith("job 'demo' failed, epoch 1:"), "the clock of a job that is over is not told"


class Notebook:
    """IPython as far as a kernel has it: what is shown, and every update of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kernel: object = "there") -> None:
        self.cells: list[list[Progress]] = []
        ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
        ipython.get_ipython = lambda: SimpleNamespace(kernel=kernel)  # type: ignore[attr-defined]
        display.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, shown: Progress, *, display_id: bool) -> Any:
        assert display_id
        self.cells.append([shown])
        return SimpleNamespace(update=self.cells[-1].append)


def test_watching_updates_one_cell_of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    draw = screen()
    draw(progress())
    draw(progress())
    assert notebook.cells == [[progress()] * 2]


def test_a_shown_job_draws_itself_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Notebook(monkeypatch)
    display = notebook()
    assert display is not None
    count, rounds, shown = iter(range(100)), threading.Semaphore(0), threading.Semaphore(0)
    over = threading.Event()

    def wait(seconds: float) -> bool:
        if seconds:  # a round of the thread: the test says when
            shown.release()
            rounds.acquire()
        return over.is_set()

    def read() -> Progress:
        return progress(waiting=[str(next(count))])

    tables = Tables(read, wait)
    for _ in range(TABLES_MAX + 1):
        tables.show(display)
    shown.acquire()
    rounds.release()
    shown.acquire()
    over.set()
    rounds.release()
    tables.join()
    assert [len(cell) for cell in book.cells] == [1] + [3] * TABLES_MAX, "the first table was let go"
    assert book.cells[1][2] == book.cells[-1][2], "all are drawn from one look at the job"
    tables.show(display)
    assert len(book.cells[-1]) == 1, "a job that has ended stays as it is"


def test_a_cell_that_is_gone_ends_the_drawing_and_not_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Progress) -> None:
        raise RuntimeError("the kernel shuts down")

    tables = Tables(progress, lambda _: False)
    tables.show(lambda *_, **__: SimpleNamespace(update=gone))
    tables.join()


@pytest.mark.parametrize("kernel", [None, "there"], ids=["terminal", "notebook"])
def test_a_job_shows_itself_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kernel: str | None
) -> None:
    class Shown(ps.Job):
        progress = progress()

    book = Notebook(monkeypatch, kernel=kernel)
    job = object.__new__(Shown)
    job._live = Tables(progress, lambda _: True)
    job._ipython_display_()
    assert capsys.readouterr().out == ("" if kernel else f"{job!r}\n")
    assert book.cells == ([[progress()]] if kernel else [])
    assert job._repr_mimebundle_(include=None, exclude=None)["text/html"] == progress()._repr_html_()


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


def test_a_report_is_one_line() -> None:
    counts = {"lost": 0, "duplicated": 0, "reordered": 0, "late": 2, "skipped": 0, "dead_letters": 1, "epochs": 3}
    empty: dict[str, Any] = {"offsets": {}, "operations": [], "workers": [], "switches": [], "audit": None}
    latency = Latency(1.0, 2.0, 3.0, 4.0, 5.0)
    more = {"latency_ms": latency, "measured_at": "out", "start_us": 0, "first_result_s": None}
    report = Report(job="demo", seconds=2.5, events_in=1000, results_out=10, **counts, **empty, **more)  # type: ignore[arg-type]
    shown = "1,000 records in, 10 results out in 2.5 s, latency p50 1 ms, p99 3 ms, 2 late, 1 dead letters"
    assert repr(report) == f"<Report of job 'demo': {shown}>"


def test_completion_shows_what_is_meant() -> None:
    stream = ps.stream("numbers", ps.records([(1,)], schema="n int"))
    assert {"filter", "join_asof", "limit", "schema"} <= set(dir(stream))
    assert not [name for name in [*dir(stream), *ps.Job.__dir__(object.__new__(ps.Job))] if name.startswith("_")]
    assert {"progress", "wait", "stop", "watch"} <= set(ps.Job.__dir__(object.__new__(ps.Job)))
