"""The live view: every figure in its place, at 80 columns too; what is unknown or over is shown as such."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from penstock.control.changes import Advice, ChangeReport
from penstock.control.monitor import OperationFigures, Status, WorkerFigures
from penstock.control.replicas import ReplicasView
from penstock.control.rescaling import MoveReport
from penstock.control.shifting import ShiftReport
from penstock.control.staffing import StaffingView
from penstock.dashboard.history import History
from penstock.dashboard.summary import progress
from penstock.dashboard.view import Frame, can_be_done


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
    console.print(Frame(shown, **options))  # type: ignore[arg-type]
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


def test_what_the_job_waits_for_is_told() -> None:
    waits = ["worker 1, silent for 8 s", "cores: 4 are needed, the cluster offers 3"]
    lines = drawn(status(operation("a"), waiting=waits))
    assert lines[2:4] == ["waits for worker 1, silent for 8 s", "waits for cores: 4 are needed, the cluster offers 3"]
    line = progress(status(operation("a"), waiting=waits), {"a"}, {"a"}, ["a"])
    assert line.endswith("waits for worker 1, silent for 8 s; cores: 4 are needed, the cluster offers 3")


def test_many_workers_are_cut() -> None:
    many = [WorkerFigures(i, i, 0.1, 10.0) for i in range(20)]
    assert "and 12 more" in " ".join(drawn(status(operation("a"), workers=many)))


SWITCH = ChangeReport(
    at_s=4.26,
    operations=["events", "score"],
    to="batch",
    pause_ms=20.8,
    total_ms=27.2,
    carried_records=386_739,
    reason="queue 369,513 > L_up 8,974",
    inputs={"V": 1.0},
)
ADVICE = Advice(at_s=4.26, operations=["events", "score"], to="batch", reason="queue 369,513 > L_up 8,974", inputs={})


def test_a_switch_is_shown_with_its_cost_and_its_reason() -> None:
    lines = drawn(status(operation("score", form="batch"), switches=[SWITCH], switches_total=1), width=100)
    at = lines.index("4.3s  ↑ batch  events, score   pause 20.8 ms, total 27.2 ms, 387K carried over")
    assert lines[at + 1].strip() == "queue 369,513 > L_up 8,974"
    assert row(lines, "score")[2] == "batch"


def test_the_newest_switches_come_first_and_the_others_are_counted() -> None:
    made = [
        ChangeReport(
            at_s=float(at),
            operations=["a"],
            to="record",
            pause_ms=1.0,
            total_ms=1.0,
            carried_records=1,
            reason=f"reason {at}",
            inputs={},
        )
        for at in range(5)
    ]
    lines = drawn(status(operation("a"), switches=made, switches_total=9))
    assert [line.strip() for line in lines if "reason" in line] == ["reason 4", "reason 3", "reason 2"]
    assert lines[-1].strip() == "and 6 before"


def test_advice_is_not_shown_as_done() -> None:
    lines = drawn(status(operation("a"), advice=[ADVICE], switches_total=1, advise=True))
    assert any(line.endswith("advised, not done") for line in lines)
    assert "pause" not in "".join(lines)


def test_components_are_shown_in_total_and_where_there_is_room_for_each_operation() -> None:
    shown = status(
        operation("score", wait_us=25_000.0, schedule_us=3_000.0, process_us=420.0),
        components_ms={"out": 0.5, "wait": 25.0, "schedule": 3.0, "process": 0.42, "transmit": 0.0},
    )
    total = "latency 28.9 ms = out 0.50 + wait 25.0 + schedule 3.00 + process 0.42 + transmit 0.00"
    narrow, wide = drawn(shown, width=90), drawn(shown, width=100)
    assert total in narrow
    assert total in wide
    assert row(wide, "score")[-5:] == ["·", "25.0", "3.00", "0.42", "·"]
    assert row(narrow, "score")[-1] == "2.81"


@pytest.mark.parametrize(
    ("width", "figures"),
    [
        (74, ["in/s", "out/s", "λ", "queue", "µs", "ms", "ms"]),
        (73, ["in/s", "out/s", "queue", "µs", "ms", "ms"]),
        (66, ["in/s", "out/s", "queue", "ms", "ms"]),
        (57, ["in/s", "queue", "ms", "ms"]),
        (44, ["in/s", "queue", "ms"]),
    ],
)
def test_on_a_narrow_terminal_names_are_cut_and_then_figures_left_out(width: int, figures: list[str]) -> None:
    lines = drawn(status(operation("enriched_and_aggregated", queue_records=123_456)), width=width)
    assert row(lines, "operation") == ["operation", "form", *figures]
    cells = row(lines, "enriched_")
    assert cells[-1] == "2.81"
    assert "123K" in cells
    assert max(map(len, lines)) <= width


def elastic(heard_us: int, placement: list[int], degree: int) -> Status:
    """A job that follows its load, at one moment."""
    shifts = [ShiftReport(7.0, "count", 0, 1, 461, 910.0, 1400.0, 12_000_000, "hot")]
    return status(
        operation("events", reads=True),
        start_us=1,
        heard_us=heard_us,
        placement=placement,
        replicas=[ReplicasView(["score"], degree, degree, 1, 8, list(range(degree)))],
        replica_pids=[1, 2, 3, 4],
        saved=0.56,
        moves=[MoveReport(5.0, 1, 0, 1, 28.4, 512.0, 104_000_000, "busy")],
        moves_total=4,
        staffing=StaffingView(present=2, wanted=2, least=1, most=4, shifts=shifts),
    )


def test_workers_replicas_and_owners_are_drawn_over_time() -> None:
    history = History()
    for heard_us, placement, degree in ((1, [0, 0], 0), (2, [0, 1], 2), (3, [0, 1], 4)):
        history.add(elastic(heard_us, placement, degree))
    lines = drawn(elastic(3, [0, 1], 4), width=100, history=history)
    assert row(lines, "workers") == ["workers", "2", "▅██", "max", "2"]
    assert row(lines, "replicas score") == ["replicas", "score", "4", "▁▅█", "max", "4"]
    assert row(lines, "instance 1 ") == ["instance", "1", "on", "1", "011", "worker"]
    assert not [line for line in lines if line.startswith("instance 0")], "it has stayed where it was"
    assert any("4 replicas, 4 active, 56% saved so far" in line for line in lines)


def test_on_a_narrow_terminal_only_who_has_moved_in_what_is_drawn_has_a_line() -> None:
    history = History()
    for heard_us in range(1, 90):
        history.add(elastic(heard_us, [0, int(heard_us > 5), int(heard_us > 80)], 2))
    lines = drawn(elastic(90, [0, 1, 1], 2), width=60, history=history)
    assert [line.split("  ")[0] for line in lines if line.startswith("instance")] == ["instance 2"]
    assert max(map(len, lines)) <= 60


def test_moves_and_shifts_are_shown_with_pause_and_bytes_newest_first() -> None:
    lines = drawn(elastic(3, [0, 1], 4), width=120)
    at = lines.index(
        "7.0s  461 key groups of count: instance 0 → 1   pause 910 ms, total 1.40K ms, 12.0M bytes loaded ahead"
    )
    assert lines[at + 1] == ("5.0s  instance 1: worker 0 → 1   pause 28.4 ms, total 512 ms, 104M bytes loaded ahead")
    assert lines[at + 2].strip() == "and 3 moves before"


def test_slots_and_the_course_of_the_job_are_shown() -> None:
    shown = status(operation("events", reads=True), slots=[11, 12], group_size=32, overhead=0.074)
    history = History()
    for heard_us in (1, 2, 3):
        history.add(status(operation("events", reads=True, in_eps=heard_us * 100.0), start_us=1, heard_us=heard_us))
    lines = drawn(shown, width=100, history=history, heading="1 of 3")
    assert lines[0] == "1 of 3"
    assert lines[2] == "worker 0: 45% CPU, 160 MB   2 slots, groups of 32, 7% scheduling"
    assert any(line.startswith("rate") and line.endswith("max 300/s") for line in lines)


@pytest.mark.parametrize("width", [100, 120])
def test_the_wide_table_fits(width: int) -> None:
    shown = status(*(operation(name, wait_us=123_456_789.0) for name in ("events", "score.combine", "to_files")))
    lines = drawn(shown, width=width)
    assert "trans" in "".join(lines)
    assert all("123K" in line for line in lines if "×2" in line)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_long_names_never_break_the_table(width: int) -> None:
    lines = drawn(status(operation("x" * 100)), width)
    assert max(map(len, lines)) <= width


def test_progress_is_one_line() -> None:
    shown = status(operation("events"), operation("count"), operation("out", records_in=300))
    assert progress(shown, {"events"}, {"out"}, ["count"]) == (
        "ads running 12s  in 100K (20.0K/s)  out 300  waiting 21  latency p50 0.56 ms p99 2.81 ms"
    )


def test_what_can_be_done_from_another_terminal() -> None:
    told = can_be_done(
        status(
            placement=[0, 1],
            replicas=[
                ReplicasView(["classify"], 2, 2, 1, 8, [0, 1], asked=True),
                ReplicasView(["always"], 4, 4, 4, 4, [0, 1, 2, 3], asked=True),
                ReplicasView(["slow"], 2, 2, 1, 8, [4, 5]),
            ],
        )
    )
    assert told.splitlines()[2:] == ["penstock scale ads 1…2|auto", "penstock replicate ads classify 1…8|auto"]
