"""The course of a job as blocks."""

from __future__ import annotations

import pytest

from penstock.control.monitor import OperationFigures, Status
from penstock.dashboard.history import POINTS_MAX, History, blocks


def status(heard_us: int, *, start_us: int = 1) -> Status:
    def figures(name: str, reads: bool) -> OperationFigures:
        return OperationFigures(
            name, "x", "record", 1, 50.0, 50.0, 1.0, 7, 1.0, 1.0, 2.5, 9, 9, 0, 0, 0, 0, 1.0, 1.0, 1.0, reads=reads
        )

    operations = [figures("events", True), figures("sink", False)]
    return Status("job", "running", 1, 0, 1.0, 1, 1.0, operations, [], start_us=start_us, heard_us=heard_us)


def test_only_news_makes_a_point() -> None:
    history = History()
    for each in (status(5), status(5), status(6), status(7, start_us=0)):
        history.add(each)
    assert list(history.rate_eps) == [50.0, 50.0]
    assert list(history.queue_records) == [14.0, 14.0]
    assert list(history.p99_ms) == [2.5, 2.5]


def test_the_past_is_bounded() -> None:
    history = History()
    for heard_us in range(2, 2 * POINTS_MAX):
        history.add(status(heard_us))
    assert len(history.rate_eps) == POINTS_MAX


@pytest.mark.parametrize(
    ("values", "width", "shown"),
    [([], 5, ""), ([0.0, 0.0], 5, "▁▁"), ([0.0, 50.0, 100.0], 5, "▁▅█"), ([9.0, 1.0, 8.0], 2, "▂█")],
)
def test_blocks_reach_from_nothing_to_the_highest(values: list[float], width: int, shown: str) -> None:
    assert blocks(values, width) == shown
