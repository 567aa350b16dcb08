"""The table of a shift, and the law that decides which key groups leave a hot instance."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.control.laws.spreading import GAIN, LOOKS, REST_LOOKS, Picture, Spreader, spread
from penstock.control.shifting import Shifting
from penstock.engine.state.moving import Moves
from penstock.operators.keys import KEY_GROUPS
from penstock.pipeline.plan import Plan
from penstock.pipeline.routes import owner_at_first
from penstock.protocol import messages as m
from penstock.runtime.job import plan_of


def plan() -> Plan:
    events = ps.stream("events", ps.records([], schema="k bigint, n bigint"))
    return plan_of(events.key_by("k").count(emit="every").to(ps.memory()), parallelism=2).placed()


def marked() -> tuple[Plan, Shifting]:
    """A shift of unit 1 whose marker, 5, is on its way."""
    made = plan()
    shifting = Shifting(made)
    assert shifting.want(1, 0, 1, [3, 4], "it is hot")
    orders = shifting.begin(7, 4, {}, 0)
    assert [(worker, type(order)) for worker, order in orders] == [(0, m.Prepare), (1, m.Prepare)]
    assert not shifting.advance(4, False, {}), "nobody has loaded yet"
    for worker in (0, 1):
        shifting.on_prepared(m.Prepared(worker=worker, incarnation=1, move=7, epoch=4, loaded_bytes=10))
    assert not shifting.advance(4, True, {}), "an epoch is under way"
    orders = shifting.advance(4, False, {})
    assert [(worker, type(order)) for worker, order in orders] == [(0, m.BeginShift), (1, m.BeginShift)]
    assert shifting.is_busy
    assert not made.routes
    assert not shifting.on_holding(holding(0), 1_000)
    assert shifting.on_holding(holding(1), 1_000)
    return made, shifting


def holding(worker: int, *, move: int = 7, epoch: int = 5) -> m.Holding:
    return m.Holding(worker=worker, incarnation=1, move=move, epoch=epoch)


def test_a_shift_stands_once_its_marker_is_on_its_way() -> None:
    made, shifting = marked()
    (shift,) = made.routes
    assert (shift.epoch, shift.groups) == (5, [3, 4])
    shifting.on_recovery()
    assert shifting.now is not None
    assert made.routes == [shift]
    assert not shifting.instances(), "before the commit a recovery is of what was lost"
    assert shifting.recorded(5, 4) == [shift]
    assert shifting.recorded(6, 4) == [], "the last commit of a job whose sources ended before the marker"
    assert shifting.on_committed(5)
    assert shifting.instances() == {(1, 0), (1, 1)}
    assert shifting.lenders({(1, 1)}, 5) == {(1, 0)}
    shifting.on_recovery()
    assert shifting.instances() == {(1, 0), (1, 1)}
    shifting.on_resumed(1_000, 31_000)
    assert shifting.is_idle
    told = [(each.operation, each.groups, each.at_s, each.pause_ms) for each in shifting.reports]
    assert told == [("count", 2, 0.03, 30.0)]
    assert 3 in shifting.owned(1, 1)
    assert 3 not in shifting.owned(1, 0)
    assert not shifting.on_committed(6)
    assert not shifting.lenders({(1, 1)}, 6), "the next snapshots need nobody else's"


def test_before_that_a_recovery_gives_it_up() -> None:
    shifting = Shifting(made := plan())
    shifting.want(1, 0, 1, [3], "it is hot")
    shifting.begin(1, 4, {}, 0)
    shifting.on_recovery()
    assert shifting.is_idle
    assert not shifting.on_holding(holding(0, move=1), 0)
    assert not made.routes


def test_who_holds_behind_a_marker_that_stands_holds_on_through_a_recovery() -> None:
    moves = Moves(None, marked()[0], lambda: 0)  # type: ignore[arg-type]
    assert [moves.holds((1, each), 4) for each in (0, 1)] == [True, True], "recovered from the epoch before"
    assert [moves.holds((1, each), 5) for each in (0, 1)] == [False, False], "which is how it arrives"
    assert not moves.holds((0, 0), 4), "of another unit"


def test_what_cannot_be_shifted_is_not() -> None:
    shifting = Shifting(plan())
    assert not shifting.can(0), "it reads a source"
    assert not shifting.want(1, 0, 0, [3], "to itself")
    assert not shifting.want(1, 1, 0, [3], "which it has not")
    with_both = Shifting(marked()[0])
    assert not with_both.want(1, 0, 1, [3], "which has gone")


def picture(
    instances: dict[tuple[int, int], float], shares: dict[int, float] | None = None, rest: float = 0.05
) -> Picture:
    count = 1 + max(instance for _, instance in instances)
    return Picture(
        workers={i: rest + sum(load for (_, each), load in instances.items() if each == i) for i in range(count)},
        placement=list(range(count)),
        instances=instances,
        groups=lambda unit, instance: [g for g in range(KEY_GROUPS) if owner_at_first(g, count) == instance],
        shares=lambda unit: shares or {},
    )


def test_half_of_what_two_workers_differ_by_leaves() -> None:
    found = spread(picture({(1, 0): 0.9, (1, 1): 0.1}))
    assert found is not None
    assert (found.unit, found.old, found.new) == (1, 0, 1)
    assert found.moved == pytest.approx(0.4, abs=0.01)
    assert len(found.groups) == pytest.approx(2048 * 4 / 9, abs=2)


def test_hot_groups_leave_first_and_one_that_is_all_of_it_stays() -> None:
    found = spread(picture({(1, 0): 0.9, (1, 1): 0.1}, {5: 0.2, 6: 0.15}))
    assert found is not None
    assert {5, 6} <= set(found.groups)
    alone = spread(picture({(1, 0): 0.9, (1, 1): 0.1}, {5: 0.7}))
    assert alone is not None
    assert 5 not in alone.groups
    assert alone.moved == pytest.approx(0.2)
    assert spread(picture({(1, 0): 0.9, (1, 1): 0.1}, {5: 0.88})) is None, "nothing but one group is hot"


def test_what_helps_little_is_left_as_it_is() -> None:
    assert spread(picture({(1, 0): 0.5, (1, 1): 0.1})) is None, "nobody is busy"
    assert spread(picture({(1, 0): 0.9, (1, 1): 0.8})) is None
    assert spread(picture({(1, 0): 0.9})) is None, "there is nobody else"


@settings(max_examples=50)
@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5), st.dictionaries(st.integers(0, 4095), st.floats(0, 0.5)))
def test_the_busiest_gets_less_busy_and_nobody_busier_than_it_was(loads: list[float], shares: dict[int, float]) -> None:
    given_ = picture({(1, i): load for i, load in enumerate(loads)}, shares, rest=0.0)
    found = spread(given_)
    if found is not None:
        assert loads[found.new] + found.moved <= max(loads) - GAIN * max(loads) + 1e-9
        assert set(found.groups) <= set(given_.groups(1, found.old))


def test_it_is_sure_before_it_acts_and_waits_for_what_comes_of_it() -> None:
    spreader, hot = Spreader(), picture({(1, 0): 0.9, (1, 1): 0.1})
    assert [spreader.decide(hot) is None for _ in range(LOOKS)] == [True] * (LOOKS - 1) + [False]
    assert [spreader.decide(hot) for _ in range(REST_LOOKS + LOOKS - 1)] == [None] * (REST_LOOKS + LOOKS - 1)
    assert spreader.decide(hot) is not None
    again = Spreader()
    again.decide(hot)
    again.forget()
    assert [again.decide(hot) is None for _ in range(LOOKS)] == [True] * (LOOKS - 1) + [False]
