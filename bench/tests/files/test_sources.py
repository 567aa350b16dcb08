"""Sources of workload files: messages of the right shape, by the right distribution, and any of them again."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.connectors.base import Run
from penstock.connectors.rates import RateSchedule
from penstock.types import Record
from penstock_bench.files import FileWorkload, Own, file_workload

START_US = 1_700_000_000_000_000
COUNT = 5_000


def workload(tmp_path: Path, *, seed: int = 0, **changes: Any) -> FileWorkload:
    source = {
        "key_dist": "uniform",
        "key_dist_params": {"num_keys": 10},
        "msg_dist": "uniform",
        "msg_dist_params": {"lower": 5, "upper": 8},
        "rate_dist": "constant",
        "rate_dist_params": {"rate": 1000},
        **changes,
    }
    path = tmp_path / "workload.json"
    path.write_text(json.dumps({"seed": seed, "sources": {"s1": source}, "sinks": ["s1"]}))
    return file_workload(path)


def records(tmp_path: Path, **changes: Any) -> list[Record]:
    return workload(tmp_path, **changes).source(total=COUNT).records(0, COUNT, START_US)


def schedule(tmp_path: Path, **changes: Any) -> RateSchedule:
    found = workload(tmp_path, **changes).source().schedule
    assert found is not None
    return found


def test_messages_have_the_form_of_the_thesis(tmp_path: Path) -> None:
    for number, message in enumerate(records(tmp_path)):
        time, text = message.value.split(",")
        assert int(time) == message.time == START_US + number * 1000
        assert re.fullmatch("[a-z]{5,8}", text)
        assert re.fullmatch("key[0-9]", message.key)
        assert message.id == number


def test_any_message_can_be_made_again_in_either_form(tmp_path: Path) -> None:
    source = workload(tmp_path).source()
    whole = source.records(0, 1000, START_US)
    assert source.records(637, 100, START_US) == whole[637:737]
    reader = source.reader(1, 3, START_US)
    columns = reader.read(Run(50, 100)).columns
    assert source.schema.to_rows(columns) == whole[151:451:3]


def test_seeds_and_names_make_a_difference_and_nothing_else_does(tmp_path: Path) -> None:
    first = records(tmp_path)
    assert records(tmp_path) == first
    assert records(tmp_path, rate_dist_params={"rate": 2000})[:9] != first[:9]
    assert [r.key for r in records(tmp_path, rate_dist_params={"rate": 2000})] == [r.key for r in first]
    assert [r.key for r in records(tmp_path, seed=1)] != [r.key for r in first]
    other = workload(tmp_path).source(total=COUNT, seed=1).records(0, COUNT, START_US)
    assert [r.key for r in other] == [r.key for r in records(tmp_path, seed=1)]


@pytest.mark.parametrize(
    ("name", "params", "shares"),
    [
        ("uniform", {"num_keys": 4}, {"key0": 0.25, "key1": 0.25, "key2": 0.25, "key3": 0.25}),
        ("uniform", {"lower": 7, "upper": 8}, {"key0": 0.5, "key1": 0.5}),
        ("zipf", {"num_keys": 3, "exponent": 1}, {"key0": 6 / 11, "key1": 3 / 11, "key2": 2 / 11}),
        ("normal", {"num_keys": 5, "mean": 2, "sd": 0.5}, {"key1": 0.157, "key2": 0.683, "key3": 0.157}),
        ("poisson", {"num_keys": 100, "mean": 1}, {"key0": 0.368, "key1": 0.368, "key2": 0.184, "key3": 0.061}),
        ("constant", {"value": 7}, {"key7": 1.0}),
        ("constant", {}, {"key0": 1.0}),
    ],
)
def test_keys(tmp_path: Path, name: str, params: dict[str, Any], shares: dict[str, float]) -> None:
    found = Counter(r.key for r in records(tmp_path, key_dist=name, key_dist_params=params))
    for key, share in shares.items():
        assert found[key] / COUNT == pytest.approx(share, abs=0.025)
    assert sum(found[key] for key in shares) > 0.95 * COUNT


@pytest.mark.parametrize(
    ("name", "params", "mean"),
    [
        ("uniform", {"lower": 10, "upper": 30}, 20),
        ("zipf", {"num_elements": 3, "exponent": 1}, 18 / 11),
        ("normal", {"mean": 50, "sd": 5}, 50),
        ("poisson", {"mean": 12}, 12),
        ("constant", {"value": 0}, 0),
        ("constant", {"value": 1000}, 1000),
    ],
)
def test_lengths(tmp_path: Path, name: str, params: dict[str, Any], mean: float) -> None:
    lengths = [len(r.value.split(",")[1]) for r in records(tmp_path, msg_dist=name, msg_dist_params=params)]
    assert float(np.mean(lengths)) == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize(
    ("name", "params", "mean", "spread"),
    [
        ("uniform", {"lower": 100, "upper": 300}, 200, 57.9),
        ("normal", {"mean": 1000, "sd": 50}, 1000, 50),
        ("poisson", {"mean": 400}, 400, 20),
        ("zipf", {"num_keys": 3, "exponent": 1}, 18 / 11, 0.77),
    ],
)
def test_rates_that_are_drawn_for_every_second(
    tmp_path: Path, name: str, params: dict[str, Any], mean: float, spread: float
) -> None:
    made = schedule(tmp_path, rate_dist=name, rate_dist_params=params)
    rates = [each.rate_eps for each in made.segments]
    assert {each.duration_us for each in made.segments} == {1_000_000}
    assert float(np.mean(rates)) == pytest.approx(mean, rel=0.05)
    assert float(np.std(rates)) == pytest.approx(spread, rel=0.1)
    assert schedule(tmp_path, rate_dist=name, rate_dist_params=params) == made
    assert schedule(tmp_path, rate_dist=name, rate_dist_params=params, seed=1) != made


def test_schedules(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("time,value\n0,10\n1,20\n")
    burst = {"base": 10, "peak": 100, "every": "10s", "length": "1s", "first": "2s"}
    steps = [{"duration": "1s", "rate": 5}, {"duration": "500ms", "rate": 0}, {"duration": "1m", "rate": 50}]
    assert schedule(tmp_path, rate_dist="burst", rate_dist_params=burst) == ps.rates.burst(**burst)
    assert schedule(tmp_path, rate_dist="steps", rate_dist_params={"steps": steps}) == ps.rates.steps(
        [("1s", 5), ("500ms", 0), ("1m", 50)]
    )
    trace = {"path": "load.csv", "scale": 2, "speed": 4}
    assert schedule(tmp_path, rate_dist="trace", rate_dist_params=trace) == ps.rates.trace(
        tmp_path / "load.csv", scale=2, speed=4
    )
    assert schedule(tmp_path, rate_dist="poisson", rate_dist_params={"rate": 7}) == ps.rates.constant(7)


def test_several_sources_share_a_rate_in_their_own_proportions(tmp_path: Path) -> None:
    def source(rate: float) -> dict[str, Any]:
        plain = {"key_dist": "constant", "msg_dist": "constant", "msg_dist_params": {"value": 1}}
        return {**plain, "rate_dist": "constant", "rate_dist_params": {"rate": rate}}

    path = tmp_path / "workload.json"
    path.write_text(json.dumps({"sources": {"s1": source(100), "s2": source(300)}, "sinks": ["s1", "s2"]}))
    made = file_workload(path)
    assert [each.total for each in made.sources(Own.FILE, seconds=2).values()] == [200, 600]
    assert [each.total for each in made.sources(1000, seconds=2).values()] == [500, 1500]
    assert [each.total for each in made.sources(1000, total=10).values()] == [2, 8]
    together = made.source(Own.FILE, seconds=2)
    assert together.total == 800
    ids = [r.id for r in together.records(150, 100, START_US)]
    assert ids == [*range(300, 400, 2), *range(1, 101, 2)]
    assert len({r.id for r in together.records(0, 800, START_US)}) == 800
