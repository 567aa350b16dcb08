"""State that was loaded ahead, a file at a time, works on as one that was read back at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.snapshot import UnitSnapshot
from penstock.engine.stage import Stage
from penstock.engine.state import Copier, StateSnapshot, restore_state
from penstock.engine.state.moving import Ahead, Loaded
from penstock.engine.state.regrouping import Regrouped
from penstock.operators import StatefulOperator
from penstock.operators.keyed.loading import Loading, parts
from penstock.operators.keys import key_group
from penstock.pipeline.plan import Plan
from penstock.pipeline.routes import Shift
from penstock.runtime.job import plan_of

SCHEMA = "k bigint, n bigint, at timestamp"
MS = 1_000


class Alarm(ps.Process):
    """Counts, and tells the count of a key 5 ms after each record."""

    count = ps.state.value(int, default=0, ttl="9ms")

    def on_record(self, record: Any, ctx: Any) -> None:
        self.count += 1
        ctx.set_timer(record.at, after="5ms")

    def on_timer(self, at_us: int, ctx: Any) -> None:
        ctx.emit({"k": ctx.key, "count": self.count, "at": at_us})


def events(name: str = "events") -> ps.Stream:
    return ps.stream(name, ps.records([], schema=SCHEMA)).with_watermark("at", 0)


def joined(**options: Any) -> ps.Stream:
    views = events("views").select("k", v=ps.col("n"), seen=ps.col("at"))
    return events().join(views, on="k", within="6ms", left_time="at", right_time="seen", **options)


def alarms(**options: Any) -> ps.Stream:
    return events().key_by("k").process(Alarm, schema="k bigint, count bigint, at timestamp", time="at", **options)


SHAPES: dict[str, Callable[[], ps.Stream]] = {
    "counts": lambda: events().key_by("k").count(emit="every"),
    "windows": lambda: events().key_by("k").window(ps.tumbling("4ms", on="at")).count(),
    "sessions": lambda: events().key_by("k").window(ps.session("4ms", on="at")).count(),
    "by number": lambda: events().key_by("k").window(ps.count_window(3, on="at")).aggregate(s=ps.agg.sum("n")),
    "distinct": lambda: events().drop_duplicates("k", on="at", within="4ms"),
    "expiring": lambda: events().key_by("k").count(emit="every", ttl="4ms", on="at"),
    "joins": joined,
    "outer joins": lambda: joined(how="full"),
    "joins once": lambda: joined(match="once"),
    "outer joins once": lambda: joined(match="once", how="full"),
    "as of": lambda: events().join_asof(
        events("views").select("k", v=ps.col("n"), seen=ps.col("at")), on="k", left_time="at", right_time="seen",
        tolerance="6ms",
    ),
    "timers": alarms,
    "in order of time": lambda: alarms(order="time"),
}  # fmt: skip


class Half:
    """What is behind the shuffle of a plan, and what its inputs go through before it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        (self.spec,) = [unit for unit in plan.units if unit.is_stateful]
        edges = plan.inputs(self.spec.id)
        self._before = [[Stage.of(op) for op in plan.units[e.producer].ops[: e.op_index + 1]] for e in edges]
        self._types = [plan.units[e.producer].schema.record_type for e in edges]

    def made(self) -> StatefulOperator:
        operator = Stage.of(self.spec.ops[0]).operator
        assert isinstance(operator, StatefulOperator)
        return operator

    def rows(self, side: int, k: int, n: int, at_ms: int) -> list[Any]:
        side %= len(self._before)
        rows: list[Any] = [self._types[side](k, n, at_ms * MS)]
        for stage in self._before[side]:
            rows = stage.process(rows).rows
        return rows


def step(half: Half, operator: StatefulOperator, event: Any) -> list[str]:
    """Have something happen to an operator; return what comes of it, in any order."""
    made = operator.advance(event * MS) if isinstance(event, int) else operator.process(half.rows(*event))
    return sorted([*map(repr, made.rows), *["late"] * made.late])


def entries(operator: StatefulOperator) -> dict[Any, list[str]]:
    return {name: sorted(map(repr, space)) for name, space in operator.state.spaces.items() if space}


happens = st.one_of(
    st.integers(0, 40), st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 9), st.integers(0, 40))
)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(happens, max_size=6), min_size=2, max_size=5), st.lists(happens, max_size=12), st.data())
def test_what_is_loaded_ahead_works_on_like_what_is_read_back(
    shape: str, epochs: list[list[Any]], after: list[Any], data: st.DataObject
) -> None:
    half = halves[shape]
    operator, log, firsts = half.made(), list[StateSnapshot](), list[int]()
    copier = Copier(operator, slice_entries=1)
    for number, events_ in enumerate(epochs):
        for event in events_:
            step(half, operator, event)
        depth, snapshot = copier.capture()
        log.append(snapshot)
        firsts.append(number - depth)
    back, ahead = half.made(), half.made()
    restore_state(back, log[firsts[-1] :])
    # Loading began at an earlier commit, with what that needed; files that were written since follow.
    began = data.draw(st.sampled_from([at for at in range(len(log)) if firsts[-1] <= at]))
    loading = Loading(ahead)
    for each in log[firsts[began] :]:
        loading.begin(each.header)
        for piece in each.pieces:
            loading.apply(piece)
    loading.end([log[-1].header])
    assert entries(ahead) == entries(back)
    for event in [*after, 1_000, 2_000]:
        assert step(half, ahead, event) == step(half, back, event)
    assert entries(ahead) == entries(back), "whenever it was forgotten, it is now"


class Pair:
    """Two instances, each with its log."""

    def __init__(self, half: Half, operators: list[StatefulOperator], logs: list[list[StateSnapshot]]) -> None:
        self._half, self.operators, self.logs = half, operators, logs
        self._copiers = [Copier(each, slice_entries=1) for each in operators]
        for copier, log in zip(self._copiers, logs, strict=True):
            if log:
                copier.restored(len(log))

    def step(self, event: Any, moved: set[int]) -> list[str]:
        """Have something happen: keys are dealt out by whether they are odd, but for those that have moved."""
        if isinstance(event, int):
            return sorted(row for each in self.operators for row in step(self._half, each, event))
        key = event[1]
        return step(self._half, self.operators[1 if key in moved else key % 2], event)

    def mark(self) -> None:
        for copier, log in zip(self._copiers, self.logs, strict=True):
            depth, snapshot = copier.capture()
            del log[: len(log) - depth]
            log.append(snapshot)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.lists(happens, max_size=8), min_size=1, max_size=3),
    st.lists(happens, max_size=12),
    st.sets(st.sampled_from([0, 2, 4])),
    st.integers(0, 2),
    st.booleans(),
)
def test_key_groups_that_go_to_another_instance_work_on_as_where_they_were(
    shape: str, epochs: list[list[Any]], after: list[Any], moved: set[int], loaded: int, again: bool
) -> None:
    half, spec = halves[shape], halves[shape].spec
    stay = Pair(half, [half.made(), half.made()], [[], []])
    for events_ in epochs:
        for event in events_:
            stay.step(event, set())
        stay.mark()
    old_log, new_log = stay.logs
    shift = Shift(unit=0, old=0, new=1, groups=[key_group(key) for key in moved], epoch=0)
    lent = [
        UnitSnapshot(
            epoch=0,
            depth=0,
            finished=False,
            next_id=0,
            inputs=[],
            written=[],
            positions={},
            operations=[],
            sinks={},
            state=each,
            lanes=[],
        )
        for each in old_log
    ]
    made: list[Ahead] = [Regrouped(spec, shift.groups, None), Regrouped(spec, shift.groups, lent)]
    rests = [old_log, new_log]
    ahead = Loaded(spec, 1, shift)
    if loaded and ahead.can_load:
        # Some files were loaded ahead; the last one is read when the instance is built.
        made = [parting := Loaded(spec, 0, shift), ahead]
        cuts = [max(0, len(log) - loaded) for log in (old_log, new_log)]
        for taking, number, files in ((parting, 0, old_log), (ahead, 0, old_log), (ahead, 1, new_log)):
            for file in files[: cuts[number]]:
                taking.begin(number, file)
                for piece in file.pieces:
                    taking.apply(number, piece)
        rests = [old_log[cuts[0] :], new_log[cuts[1] :]]
        ahead.lent = rests[0]
    operators = [each.stage.operator for each in made if isinstance(each.stage.operator, StatefulOperator)]
    for each, operator, rest in zip(made, operators, rests, strict=True):
        each.restore(operator, rest)
    gone = Pair(half, operators, [list(old_log), list(new_log)])
    gone.mark()
    if again:  # what was written behind the shift is all that anybody needs
        back = [half.made(), half.made()]
        for operator, log in zip(back, gone.logs, strict=True):
            restore_state(operator, log)
        assert list(map(entries, back)) == list(map(entries, operators))
        gone = Pair(half, back, gone.logs)
    for event in [*after, 1_000, 2_000]:
        assert gone.step(event, moved) == stay.step(event, set())


halves = {shape: Half(plan_of(made().to(ps.memory()), parallelism=1)) for shape, made in SHAPES.items()}


def test_what_a_log_says_of_an_entry_that_has_left_it_is_history() -> None:
    half = halves["counts"]
    before, after = half.made(), half.made()
    step(half, before, (0, 1, 5, 0))
    held = before.state.whole()
    before.state.leave(0, [1])
    _, own, lent = parts([key_group(1) + 1])
    Loading(after, own).apply(held)
    other = Loading(after, lent)
    other.apply(held)
    other.apply(before.state.flush(1))
    assert entries(after) == {0: ["1"]}
