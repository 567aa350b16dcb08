"""The simulator over users' pipelines: right ones pass, wrong ones are found, with a seed to find them again."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.engine.worker import ReadBack
from penstock.errors import InvalidGraph, NotSerializable, TypeMismatch, UnknownColumn
from penstock.protocol import messages as m
from penstock.testing import simulate
from penstock.testing.simulation.run import Simulation
from penstock.testing.simulation.scenario import Scenario
from penstock.testing.simulation.world import Violation

EVENT = "k string, n bigint, at timestamp"
ROWS = [(f"k{i % 4}", i, 1_000_000 * i) for i in range(30)]


def events() -> ps.Stream:
    return ps.stream("in", ps.records(schema=EVENT))


class Kept(ps.Process):
    count = ps.state.value(int, default=0)

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.count += 1
        yield record.k, self.count


class Forgotten(ps.Process):
    """Keeps its count where no snapshot finds it."""

    def open(self) -> None:
        self.counts: Counter[str] = Counter()

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.counts[record.k] += 1
        yield record.k, self.counts[record.k]


def counted(kind: type[ps.Process]) -> ps.Pipeline:
    return events().key_by("k").process(kind, schema="k string, count bigint").to(ps.memory(), name="out")


def test_right_pipelines_pass_and_faults_have_struck() -> None:
    stream = events()
    running = stream.filter("n >= 0").key_by("k").aggregate(s=ps.agg.sum("n")).to(ps.memory(), name="running")
    both = running + stream.key_by("k").window("10s", on="at").count().to(ps.memory(), name="windows")
    done = simulate(both, {"in": ROWS}, seeds=6)
    assert done.seeds == 6
    assert done.faults >= 6
    assert done.recoveries >= 3
    assert done.switches >= 1
    assert simulate(counted(Kept), {"in": ROWS}, seeds=[3]) == simulate(counted(Kept), {"in": ROWS}, seeds=[3])


def test_sums_of_fractions_may_differ_in_their_last_digit() -> None:
    tenths = ps.stream("in", ps.records(schema="x double, at timestamp"))
    sums = tenths.window("1m", on="at").sum("x").to(ps.memory())
    simulate(sums, {"in": [(n / 10, n) for n in range(60)]}, seeds=[0, 2])


def test_alternatives_and_dead_letters() -> None:
    divided = ps.lit(12) / (ps.col("n") % 7)
    stream = events().alternatives(
        "double", times=lambda s: s.filter("n >= 0"), plus=lambda s: s.filter("n + 1 > 0").filter("n >= 0")
    )
    pipeline = stream.select("k", divided.alias("q"), on_error="dead_letter").to(ps.memory(), dead_letters=ps.memory())
    assert simulate(pipeline, {"in": ROWS}, seeds=3, alternatives=True).exchanges > 3


def test_a_function_that_keeps_state_of_its_own_is_found_and_the_seed_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError, match="sink 'out'") as raised:
        simulate(counted(Forgotten), {"in": ROWS}, seeds=20)
    text = str(raised.value)
    seed = int(text.partition("seed ")[2].partition(":")[0])
    assert f"PENSTOCK_SEED={seed}" in text
    assert "count is" in text
    assert "what happened before:" in text
    monkeypatch.setenv("PENSTOCK_SEED", str(seed))
    with pytest.raises(AssertionError) as again:
        simulate(counted(Forgotten), {"in": ROWS}, seeds=1)
    assert str(again.value) == text
    assert "tick" in capsys.readouterr().out


def test_what_is_expected_may_be_given() -> None:
    doubled = events().select("k", (ps.col("n") * 2).alias("m")).to(ps.memory(), name="out")
    simulate(doubled, {"in": ROWS[:3]}, seeds=1, expected={"out": [("k0", 0), ("k1", 2), ("k2", 4)]})
    with pytest.raises(AssertionError, match="m is 4, not 5"):
        simulate(doubled, {"in": ROWS[:3]}, seeds=1, expected={"out": [("k0", 0), ("k1", 2), ("k2", 5)]})


def test_output_that_depends_on_timing_is_told_apart_from_a_fault() -> None:
    renamed = events().key_by("k").count().select(ps.col("k").alias("who"), "count").to(ps.memory(), name="out")
    late = ps.records(partitions=[ROWS[:10], ROWS[10:]], schema=EVENT)
    simulate(renamed, {"in": late}, seeds=2, latest={"out": ["who"]})
    with pytest.raises(UnknownColumn):
        simulate(renamed, {"in": late}, seeds=1, latest={"out": ["k"]})


def test_unknown_names_and_what_cannot_be_sent_are_refused() -> None:
    with pytest.raises(InvalidGraph, match="Sources: in"):
        simulate(counted(Kept), {"inn": ROWS})
    with pytest.raises(InvalidGraph, match="Sinks: out"):
        simulate(counted(Kept), {"in": ROWS}, expected={"ouch": []})
    with pytest.raises(TypeMismatch, match="Name the source"):
        simulate(counted(Kept), ROWS)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatch, match=r"\.to\("):
        simulate(events(), {"in": ROWS})  # type: ignore[arg-type]
    lock = threading.Lock()
    with pytest.raises(NotSerializable, match="operation 'map'"):
        simulate(events().map(lambda r: (lock, r.n)[1], schema="n bigint").to(ps.memory()), {"in": ROWS})


def test_what_a_process_that_was_replaced_no_longer_finds_is_no_fault() -> None:
    """It stood still while what it was told to read was cleared away."""
    drawn = next(each for each in map(Scenario.of, range(100)) if each.options.parallelism > 1)
    simulation = Simulation(replace(drawn, faults=[]))
    peers = simulation.driver.machine.scheduler.peers
    while len(peers) < 2:
        assert simulation.world.step()
    replaced, known, *_ = (each for each in simulation.processes.values() if each.id in (0, 1))
    peers[replaced.id] = msgspec.structs.replace(peers[replaced.id], incarnation=99)
    gone = ReadBack((m.Stored(unit=0, instance=0, epoch=1, depth=0, name="gone", crc=0),), careful=False)
    replaced._read_back(gone, simulation.world.now_us)
    assert "missing" in str(replaced.machine.failure)
    with pytest.raises(Violation, match="missing"):
        known._read_back(gone, simulation.world.now_us)
