"""Runs side by side: the best of a line stands out, what did not come to pass is not invented."""

from __future__ import annotations

from penstock.demo.series import BurstFigures
from penstock.demo.table import cells

ADAPTIVE = BurstFigures("adaptive", 1.0, 235.0, 240.0, 7.3, 235.0, 27_700, 0.5, 1.2, 2, 27.9)
RECORD = BurstFigures("record", 557.0, 8_520.0, 9_000.0, 7.3, None, 146_000, None, None, 0, 0.0, lost=3)


def table() -> dict[str, tuple[list[str], int | None]]:
    return {title: (values, best) for title, values, best in cells([ADAPTIVE, RECORD])}


def test_the_best_of_a_line_is_known() -> None:
    assert table()["latency, p99"] == (["235 ms", "8.52K ms"], 0)
    assert table()["p99 while calm"] == (["7.30 ms", "7.30 ms"], None)


def test_what_did_not_come_to_pass_has_no_figure_and_cannot_be_best() -> None:
    assert table()["burst over → queue gone"] == (["0.5 s", "not seen"], None)
    assert table()["longest pause"] == (["27.9 ms", "–"], None)


def test_faults_and_switches_are_counted_not_compared() -> None:
    assert table()["lost"] == (["0", "3"], None)
    assert table()["switches"] == (["2", "0"], None)
