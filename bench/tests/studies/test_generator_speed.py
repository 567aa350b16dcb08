"""The check of the generator's own speed: what it measures, and what it makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock_bench.studies import generator_speed as generator
from penstock_bench.studies.generator_speed import Speed, Speeds, judge, measure
from penstock_bench.workloads import WORKLOADS


def test_the_slowest_source_is_held_against_the_target() -> None:
    fast, slow = Speed("yahoo", 5e6, 2e6, 230.0), Speed("file", 1.9e6, 6e5, 584.0)
    batch, record = judge(Speeds(1, [fast, slow]))
    assert (batch.value, batch.met) == (1_900_000, False)
    assert (record.value, record.met) == (600_000, True)
    assert batch.detail["by source"] == {"yahoo": 5_000_000, "file": 1_900_000}
    assert "core 1" in str(record.detail["how"])
    assert "no core of its own" in str(judge(Speeds(None, [fast]))[0].detail["how"])
    assert all(check.met for check in judge(Speeds(None, [fast])))


def test_both_forms_of_a_source_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "SLICE_S", 0.001)
    found = measure("yahoo", WORKLOADS["yahoo"].source(generator.OFFERED_EPS))
    assert found.source == "yahoo"
    assert found.batch_eps > 0
    assert found.record_eps > 0
    assert 100 < found.event_bytes < 400


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"nowhere\.json"):
        generator.check_generator(tmp_path / "nowhere.json")
