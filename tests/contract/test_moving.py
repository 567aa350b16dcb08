"""Columns move between workers while a job runs: the results are those of a job that nobody has touched."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from test_rescaling import SHAPES

import penstock as ps
from penstock.control.scheduler import START_DELAY_US
from penstock.runtime.job import plan_of
from penstock.testing import collect
from penstock.testing.cluster import Cluster


def plain(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("shape", SHAPES)
def test_up_and_down_gives_what_a_batch_gives(shape: str) -> None:
    seed, sink = len(shape), ps.memory()
    plan = plan_of(SHAPES[shape](seed).to(sink), epoch="10ms", parallelism=4, workers=1)
    # State is written in pieces, however little there is, so that some of it is loaded ahead.
    cluster = Cluster(replace(plan, options=replace(plan.options, state_slice=1)))
    begin_us = cluster.now_us + START_DELAY_US
    cluster.run_until(begin_us + 20_000)
    cluster.scale(3)
    cluster.run_until(begin_us + 80_000)
    assert sorted(set(cluster.placement)) == [0, 1, 2]
    cluster.scale(2)
    cluster.run_until(1 << 62)
    assert cluster.ended
    assert sorted(set(cluster.placement)) == [0, 1]
    assert len(cluster.moves) >= 3
    assert plain(sink.dicts()) == plain(collect(SHAPES[shape](seed)))


def test_a_worker_with_several_instances_tells_all_of_their_offsets() -> None:
    sink = ps.memory()
    cluster = Cluster(plan_of(SHAPES["counts"](1).to(sink), parallelism=4, workers=1))
    cluster.run_until(1 << 62)
    (share,) = cluster.workers
    assert share.offsets() == {"events": {0: 30, 1: 30, 2: 30}}
