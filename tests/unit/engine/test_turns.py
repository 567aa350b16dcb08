"""A turn of a worker looks only at what has something to do: units by their bells and times, channels likewise."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import add

import pytest

import penstock as ps
from penstock.dataset import Sender
from penstock.engine.unit import Unit
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

S = 1_000_000


def source(name: str, rate: float) -> ps.Stream:
    fields = {"n": ps.fields.sequence(), "k": ps.fields.choice(["a", "b", "c", "d"])}
    return ps.stream(name, ps.generator(fields, rate=rate, format="columns"))


def steps_of(pipeline: ps.Pipeline, monkeypatch: pytest.MonkeyPatch, parallelism: int = 1) -> Counter[str]:
    """How often each unit is looked at in ten seconds, by name."""
    cluster = Cluster(Plan.of(pipeline.graph(), Options.of(parallelism=parallelism, epoch="1h", idle="1h")))
    cluster.run_until(cluster.now_us + S)
    steps: Counter[str] = Counter()
    original = Unit.step

    def step(self: Unit, now_us: int) -> bool:
        steps[self.spec.name] += 1
        return original(self, now_us)

    monkeypatch.setattr(Unit, "step", step)
    cluster.run_until(cluster.now_us + 10 * S)
    return steps


def test_a_calm_source_is_left_alone_while_another_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, calm = source("busy", 1000), source("calm", 1)
    steps = steps_of(busy.to(ps.memory()) + calm.to(ps.memory()), monkeypatch)
    assert steps["busy"] >= 10_000 / 2
    # One step reads a record, one may find that there is none; and now and then the driver says something.
    assert steps["calm"] <= 10 * 2 + 200


def test_a_unit_behind_a_shuffle_is_looked_at_when_a_block_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = source("busy", 1000)
    calm = source("calm", 1).key_by("k").count().to(ps.memory())
    steps = steps_of(busy.to(ps.memory()) + calm, monkeypatch, parallelism=2)
    behind = sum(count for name, count in steps.items() if name not in ("busy", "calm"))
    assert behind <= 2 * (10 * 2 + 10 * 20 * 2 + 200), "blocks, and announcements of those without records"


def test_a_channel_without_news_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[int]()
    original = Sender.next

    def following(self: Sender, now_us: int) -> object:
        asked[self.channel.edge] += 1
        return original(self, now_us)

    monkeypatch.setattr(Sender, "next", following)
    busy = source("busy", 1000)
    calm = source("calm", 1).key_by("k").count().to(ps.memory())
    steps_of(busy.to(ps.memory()) + calm, monkeypatch, parallelism=2)
    assert sum(asked.values()) <= 2_500, "and not at each of 20,000 turns"


def test_a_unit_that_waits_for_room_goes_on_when_there_is_some() -> None:
    """Everything that was made comes out, although the queues are full most of the time."""
    rows = [(i % 7, i) for i in range(5_000)]
    out = ps.memory()
    pipeline = (
        ps.stream("in", ps.records(rows, schema="k bigint, n bigint"))
        .key_by("k")
        .map(lambda r: (r.k, r.n), schema="k bigint, n bigint")
        .to(out)
    )
    cluster = Cluster(Plan.of(pipeline.graph(), Options.of(parallelism=2, queue_records=8, epoch="100ms")))
    cluster.run_until(cluster.now_us + 600 * S)
    assert cluster.ended
    assert sorted((row.k, row.n) for row in out.rows) == sorted(rows)


@pytest.mark.parametrize("sources", [1, 10])
def test_sources_share_their_turns_however_many_they_are(sources: int, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: set[int] = set()
    original = Unit.step

    def step(self: Unit, now_us: int) -> bool:
        turns.add(now_us)
        return original(self, now_us)

    monkeypatch.setattr(Unit, "step", step)
    rates = [5_000 / sources * (0.8 + i / 25) for i in range(sources)]
    pipelines = [source(f"s{i}", rate).to(ps.memory()) for i, rate in enumerate(rates)]
    plan = Plan.of(reduce(add, pipelines).graph(), Options.of(parallelism=1, epoch="1h", idle="1h"))
    cluster = Cluster(plan)
    cluster.run_until(cluster.now_us + S)
    assert len(turns) <= 1.1 * S / plan.options.linger_us, "and not one for each of 5,000 records"
