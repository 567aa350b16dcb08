"""Recorded loads: where they are looked for, which stretch is replayed, and how high; and time in each form."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.control.changes import ChangeReport
from penstock.errors import InvalidOption
from penstock_bench.studies.dynamism import batch_share, offered
from penstock_bench.studies.traces import DIRECTORY_VARIABLE, MADE_UP, SPEED, Trace, find_traces, made_up


def switch(at_s: float, to: str, operation: str = "score") -> ChangeReport:
    return ChangeReport(
        at_s=at_s,
        operations=[operation],
        to=to,
        pause_ms=1.0,
        total_ms=500.0,
        carried_records=0,
        reason="queue",
        inputs={},
    )


def test_the_stretch_is_around_the_busiest_time_and_as_high_as_asked() -> None:
    rates = [10.0] * 500 + [100.0] * 15 + [10.0] * 500
    stretch = Trace("t", "recorded", tuple(rates)).stretch(2.0, 5_000.0)
    assert len(stretch.rates_eps) == 60
    assert stretch.seconds == 60 / SPEED
    assert stretch.first_s == 500 + 7 - 30
    assert stretch.rates_eps.count(5_000.0) == 15
    assert stretch.rates_eps.count(500.0) == 45
    assert stretch.mean_eps == (15 * 5_000 + 45 * 500) / 60
    assert stretch.schedule.due(2_000_000 - 1) == pytest.approx(stretch.mean_eps * 2, abs=2)


def test_what_is_offered_in_every_tenth_of_a_second() -> None:
    rates = [10.0] * 15 + [100.0] * 15
    found = offered(Trace("t", "recorded", tuple(rates)).stretch(1.0, 5_000.0))
    assert found == pytest.approx([500.0] * 5 + [5_000.0] * 5, abs=20)


@pytest.mark.parametrize("place", [0, 99])
def test_a_busiest_time_at_the_edge_is_not_left_out(place: int) -> None:
    rates = [1.0] * 100
    rates[place] = 1_000.0
    stretch = Trace("t", "recorded", tuple(rates)).stretch(1.0, 100.0)
    assert len(stretch.rates_eps) == 30
    assert max(stretch.rates_eps) == pytest.approx(1_000 * 100 / ((1_000 + 14) / 15))


def test_a_record_that_is_too_short_is_replayed_as_a_whole() -> None:
    stretch = Trace("t", "recorded", (1.0, 2.0)).stretch(5.0, 10.0)
    assert stretch.first_s == 0
    assert len(stretch.rates_eps) == 2


def test_records_are_read_from_the_directory_that_the_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dns.csv").write_text("time,value\n0,5\n1,5\n2,7\n")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    (found,) = find_traces()
    assert (found.name, found.rates_eps) == ("dns", (5.0, 5.0, 7.0))
    assert found.origin == "recorded, dns.csv, 3 s"


def test_a_directory_without_records_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    with pytest.raises(InvalidOption, match=DIRECTORY_VARIABLE):
        find_traces()


def test_a_load_that_is_made_up_is_bursty_always_the_same_and_says_so() -> None:
    first = made_up()
    assert first == made_up()
    assert first != made_up(seed=8)
    assert first.name == MADE_UP
    assert "made up" in first.origin
    assert max(first.rates_eps) > 3 * sorted(first.rates_eps)[len(first.rates_eps) // 2]


def test_time_in_batch_form() -> None:
    assert batch_share([], "score", 10.0) == 0.0
    assert batch_share([switch(-1.0, "batch")], "score", 10.0) == 1.0
    # A switch counts from its end on.
    assert batch_share([switch(1.5, "batch"), switch(5.5, "record")], "score", 10.0) == 0.4
    assert batch_share([switch(7.5, "batch")], "score", 10.0) == 0.2
    assert batch_share([switch(12.0, "batch")], "score", 10.0) == 0.0
    assert batch_share([switch(1.5, "batch", "other")], "score", 10.0) == 0.0
    assert batch_share([switch(1.5, "batch")], "score", 0.0) == 0.0
