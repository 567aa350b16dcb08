"""When a worker listens to nobody until it wakes up by itself, so that what comes meanwhile shares a turn."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.connectors.buffered import DeliveringWriter
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

MS = 1_000
LOOKS = 100


class Play:
    """Two workers that have been at work for a while."""

    def __init__(self, stream: ps.Stream, **options: Any) -> None:
        plan = Plan.of(stream.to(ps.memory()).graph(), Options.of(parallelism=2, epoch="1h", **options))
        self.cluster = Cluster(plan)
        self.cluster.run_until(self.cluster.now_us + 100 * MS)

    def resting(self) -> list[float]:
        """In which share of moments each worker rests; timers, which come now and then, bring it about too."""
        counts = [0, 0]
        for _ in range(LOOKS):
            now_us = self.cluster.now_us
            for worker, machine in self.cluster._machines.items():
                counts[worker] += machine.rests(machine.wake_us(now_us), now_us)
            self.cluster.run_until(now_us + MS)
        return [each / LOOKS for each in counts]


def generated(rate: float, **options: Any) -> ps.Stream:
    fields = {"n": ps.fields.sequence(), "k": ps.fields.choice(["a", "b", "c", "d"])}
    return ps.stream("in", ps.generator(fields, rate=rate, format="columns", **options))


def test_who_wakes_up_soon_anyway_rests() -> None:
    assert min(Play(generated(20_000).key_by("k").count()).resting()) > 0.95


def test_who_has_a_slow_source_or_none_listens() -> None:
    assert max(Play(generated(10).key_by("k").count()).resting()) < 0.1
    first, second = Play(generated(20_000, partitions=1).key_by("k").count()).resting()
    assert first > 0.95
    assert second < 0.1


def test_who_waits_for_results_of_others_listens() -> None:
    play = Play(generated(20_000).filter(ps.col("n") >= 0))
    assert min(play.resting()) > 0.95
    name = play.cluster.add_slot(0)
    play.cluster.switch(0, 0, 0)
    slot = play.cluster._slots[name]
    slot.step = lambda now_us: False  # type: ignore[method-assign]
    slot.wake_us = lambda: 1 << 62  # type: ignore[method-assign]
    play.cluster.run_until(play.cluster.now_us + 100 * MS)
    assert max(play.resting()) < 0.05, "what it has gathered waits for a slot"


def test_who_waits_for_room_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(generated(20_000))
    monkeypatch.setattr(DeliveringWriter, "is_blocked", property(lambda self: True))
    play.cluster.run_until(play.cluster.now_us + 10 * MS)
    assert max(play.resting()) < 0.2
