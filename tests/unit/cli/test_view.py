"""The live view: every figure in its place, at 80 columns too; what is unknown or over is shown as such."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from penstock.control.monitor import OperationFigures, Status, WorkerFigures
from penstock.dashboard.summary import progress
from penstock.dashboard.view import frame


def operation(name: str, **changes: object) -> OperationFigures:
    values: dict[str, object] = {
        "name": name,
        "kind": "filter",
        "form": "record",
        "instances": 2,
        "in_eps": 20_000.0,
        "out_eps": 6_600.0,
        "selectivity": 0.33,
        "queue_records": 7,
        "service_us": 1.25,
        "p50_ms": 0.56,
        "p99_ms": 2.81,
        "records_in": 100_000,
        "records_out": 33_000,
        "late": 0,
        "skipped": 0,
        "retried": 0,
        "dead_letters": 0,
        "total_p50_ms": 0.6,
        "total_p99_ms": 3.0,
        "total_max_ms": 9.0,
    }
    return OperationFigures(**(values | changes))  # type: ignore[arg-type]


def status(*operations: OperationFigures, **changes: object) -> Status:
    values: dict[str, object] = {
        "job": "ads",
        "phase": "running",
        "pid": 1,
        "at_us": 0,
        "uptime_s": 12.0,
        "epoch": 11,
        "epoch_ms": 4.5,
        "operations": list(operations),
        "workers": [WorkerFigures(0, 1, 0.45, 160.0)],
    }
    return Status(**(values | changes))  # type: ignore[arg-type]


def drawn(shown: Status, width: int = 80, **options: object) -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False)
    console.print(frame(shown, **options))  # type: ignore[arg-type]
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def row(lines: list[str], name: str) -> list[str]:
    return next(line.split() for line in lines if line.strip().startswith(name))


def test_a_frame_holds_every_figure_at_80_columns() -> None:
    lines = drawn(status(operation("count.combine")), note="q leaves")
    assert lines[0] == "penstock ads   ● running   up 12s   epoch 11 (4.50 ms)"
    assert lines[1] == "worker 0: 45% CPU, 160 MB"
    assert row(lines, "operation") == ["operation", "form", "in/s", "out/s", "λ", "queue", "µs", "ms", "ms"]
    assert row(lines, "count.combine")[2:] == ["record", "20.0K", "6.60K", "0.33", "7", "1.25", "0.56", "2.81"]
    assert lines[-1] == "q leaves"
    assert max(map(len, lines)) <= 80


def test_an_operation_that_has_seen_nothing_shows_no_figures() -> None:
    cells = row(drawn(status(operation("sink", records_in=0, queue_records=0))), "sink")
    assert cells[2:] == ["record", *["·"] * 7]


def test_latencies_of_the_past_are_not_shown_as_present_ones() -> None:
    assert row(drawn(status(operation("sink", in_eps=0.0))), "sink")[-2:] == ["·", "·"]


def test_records_that_went_aside_are_told_once_there_are_any() -> None:
    told = drawn(status(operation("a", late=3), operation("b", dead_letters=1200)))
    assert told[-1] == "3 late   1.20K dead letters"
    assert "late" not in "".join(drawn(status(operation("a"))))


def test_a_job_without_news_says_so() -> None:
    assert drawn(status(operation("a")), age_s=12.0)[0].endswith("no news for 12s")


def test_a_job_without_workers_is_waiting() -> None:
    assert "waiting for the workers" in drawn(status(phase="starting", workers=[]))


def test_many_workers_are_cut() -> None:
    many = [WorkerFigures(i, i, 0.1, 10.0) for i in range(20)]
    assert "and 12 more" in " ".join(drawn(status(operation("a"), workers=many)))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_long_names_never_break_the_table(width: int) -> None:
    lines = drawn(status(operation("x" * 100)), width)
    assert max(map(len, lines)) <= width


def test_progress_is_one_line() -> None:
    shown = status(operation("events"), operation("count"), operation("out", records_in=300))
    assert progress(shown, {"events"}, {"out"}, ["count"]) == (
        "ads running 12s  in 100K (20.0K/s)  out 300  waiting 21  latency p50 0.56 ms p99 2.81 ms"
    )
