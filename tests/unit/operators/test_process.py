"""Process functions as users write them: states, timers, outputs, errors, time to live; in made-up time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from states import restore, snapshot

import penstock as ps
from penstock.connectors.memory import At
from penstock.control.resume import anchors, match
from penstock.errors import BadRecord, CheckpointMismatch, InvalidOption, OperationFailed, PenstockError, TypeMismatch
from penstock.operators import Errors, Process, Processing
from penstock.operators.keyed.process import ProcessOperator, ProcessState
from penstock.pipeline.explain import explain_plan
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing import Harness
from penstock.types import Schema

S = 1_000_000
SCHEMA = "k string, at timestamp, x bigint"
OUT = "k string, x bigint"


def keyed(rows: list[Any] | None = None) -> Any:
    return ps.stream("in", ps.records(rows or [], schema=SCHEMA)).key_by("k")


def timed(rows: list[Any] | None = None) -> Any:
    return ps.stream("in", ps.records(rows or [], schema=SCHEMA)).with_watermark("at", "1s").key_by("k")


def results(stream: Any, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in ps.testing.collect(stream, **options)]


class Count(Process):
    n = ps.state.value(int, default=0)

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.n += 1
        return record.k, self.n


def test_each_key_has_its_own_state_and_all_share_the_rest() -> None:
    class Above(Process):
        most = ps.state.value(int)

        def __init__(self, least: int) -> None:
            self.least = least

        def open(self) -> None:
            self.calls: list[str] = []

        def on_record(self, record: Any, ctx: Any) -> Any:
            self.calls.append(record.k)
            if record.x >= self.least and (self.most is None or record.x > self.most):
                self.most = record.x
                ctx.emit((ctx.key, len(self.calls)))

    rows = [("a", 0, 5), ("b", 0, 1), ("a", 0, 5), ("b", 0, 7), ("a", 0, 6)]
    assert results(keyed(rows).process(Above(3), schema=OUT)) == [("a", 1), ("b", 4), ("a", 5)]


@pytest.mark.parametrize("made", [[("a", 1), ("b", 2)], {"k": "a", "x": 1}, ("a", 1), None])
def test_a_handler_may_return_its_records(made: Any) -> None:
    class Returns(Process):
        def on_record(self, record: Any, ctx: Any) -> Any:
            return made

    expected = made if isinstance(made, list) else [] if made is None else [("a", 1)]
    assert results(keyed([("a", 0, 0)]).process(Returns, schema=OUT)) == expected


def test_states_of_structs_and_dataclasses_survive_a_snapshot() -> None:
    class Visit(msgspec.Struct):
        at: int
        page: str

    @dataclass
    class Basket:
        items: list[str]

    class Visits(Process):
        last = ps.state.value(Visit)
        basket = ps.state.value(Basket, default=Basket([]))
        pages = ps.state.map(str, list[int])

        def on_record(self, record: Any, ctx: Any) -> Any:
            self.last = Visit(record.at, record.k)
            self.basket.items.append(record.k)
            self.pages.setdefault(record.k, []).append(record.x)

    schema = Schema.parse(SCHEMA)
    of = Processing(Visits(), ("k",), Schema.parse(OUT))

    def build() -> ProcessOperator:
        made = ProcessState(of).build(schema, Errors("visits"))
        assert isinstance(made, ProcessOperator)
        return made

    first = build()
    first.process([schema.record_type("a", 1, 2), schema.record_type("a", 3, 4), schema.record_type("b", 5, 6)])
    again = build()
    restore(again, [snapshot(first, True)])
    a, b = again.table.objects["a"], again.table.objects["b"]
    assert (a.last, a.basket, a.pages) == (Visit(3, "a"), Basket(["a", "a"]), {"a": [2, 4]})
    assert b.basket.items == ["b"]
    assert Visits.basket.default.items == []


def test_event_timers_fire_in_the_order_of_time_and_once() -> None:
    class Alarm(Process):
        def on_record(self, record: Any, ctx: Any) -> Any:
            ctx.set_timer(record.at, "2s")
            ctx.set_timer(record.at + 2 * S)
            ctx.set_timer(record.at, after=1)
            if record.x:
                ctx.cancel_timer(record.at, after=1)

        def on_timer(self, at_us: int, ctx: Any) -> Any:
            yield ctx.key, at_us // S

    rows = [("a", 1 * S, 1), ("b", 2 * S, 0), ("c", 20 * S, 1)]
    harness = Harness(timed([*rows, At("100s")]).process(Alarm, schema=OUT).to(ps.memory()))
    harness.advance("2s")
    # The watermark is at 19 s: a's timer at 3 s, b's at 3 s and 4 s.
    assert [tuple(row.values()) for row in harness.rows()] == [("a", 3), ("b", 3), ("b", 4)]
    harness.run()
    assert [tuple(row.values()) for row in harness.rows()][3:] == [("c", 22)]


def test_clock_timers_fire_by_the_clock_and_in_order() -> None:
    class Flush(Process):
        held = ps.state.list(int)

        def on_record(self, record: Any, ctx: Any) -> Any:
            if not self.held:
                ctx.set_clock_timer("3s")
            self.held.append(record.x)

        def on_clock(self, at_us: int, ctx: Any) -> Any:
            yield ctx.key, sum(self.held)
            ctx.forget()

    rows = [("a", 0, 1), At("2s"), ("a", 0, 2), ("b", 0, 5), At("4s"), ("a", 0, 7), At("60s"), ("c", 0, 9)]
    harness = Harness(keyed(rows).process(Flush, schema=OUT).to(ps.memory()), epoch="100ms")
    harness.advance("3.9s")
    assert [tuple(row.values()) for row in harness.rows()] == [("a", 3)]
    harness.advance("20s")
    assert [tuple(row.values()) for row in harness.rows()] == [("a", 3), ("b", 5), ("a", 7)]
    harness.run()  # what waits at the end fires then
    assert [tuple(row.values()) for row in harness.rows()][3:] == [("c", 9)]


@pytest.mark.parametrize("crash_at", [1_500_000, 2_700_000, 3_200_000])
def test_a_clock_timer_that_was_set_in_a_committed_epoch_fires_after_a_crash_once(crash_at: int) -> None:
    class Later(Process):
        n = ps.state.value(int, default=0)

        def on_record(self, record: Any, ctx: Any) -> Any:
            self.n += record.x
            ctx.set_clock_timer(at=1_700_000_003_000_000)

        def on_clock(self, at_us: int, ctx: Any) -> Any:
            yield ctx.key, self.n

    rows = [("a", 0, 1), ("b", 0, 2), At("9s"), ("b", 0, 4)]
    harness = Harness(keyed(rows).process(Later, schema=OUT).to(ps.memory()), parallelism=2)
    harness.advance(crash_at / S)
    harness._cluster.crash(0)
    harness._cluster.crash(1)
    harness.run()
    assert sorted(tuple(row.values()) for row in harness.rows()) == [("a", 1), ("b", 2), ("b", 6)]


def test_outputs_are_streams_and_a_wrong_name_is_told() -> None:
    class Parts(Process):
        def on_record(self, record: Any, ctx: Any) -> Any:
            ctx.output("odd" if record.x % 2 else "even", (record.x,))

    made = keyed([("a", 0, 1), ("a", 0, 2)]).process(Parts, schema=OUT, outputs={"odd": "x bigint", "even": "x bigint"})
    harness = Harness(made.output("odd").to(ps.memory(), name="o") + made.output("even").to(ps.memory(), name="e"))
    harness.run()
    assert (harness.rows("o"), harness.rows("e")) == ([{"x": 1}], [{"x": 2}])
    with pytest.raises(InvalidOption, match="odd, even"):
        made.output("od")
    with pytest.raises(InvalidOption, match="outputs"):
        keyed().process(Parts, schema=OUT, outputs={"late": "x bigint"})
    bad = keyed([("a", 0, 1)]).process(Parts, schema=OUT, outputs={"even": "x bigint"})
    with pytest.raises(OperationFailed, match="'odd'"):
        ps.testing.collect(bad)


def test_late_records_are_counted_and_put_aside() -> None:
    made = timed([("a", 10 * S, 1), At("1s"), ("a", 2 * S, 2), ("a", 9 * S, 3)]).process(Count, schema=OUT, name="n")
    harness = Harness(made.to(ps.memory(), name="main") + made.late.to(ps.memory(), name="late"))
    harness.run()
    assert [row["x"] for row in harness.rows("main")] == [1, 2]
    assert [row["x"] for row in harness.rows("late")] == [2]
    assert harness.count("n", "late") == 1
    with pytest.raises(TypeMismatch, match="late"):
        keyed().process(Count, schema=OUT).late  # noqa: B018


class Faulty(Process):
    total = ps.state.value(int, default=0)
    seen = ps.state.list(int)

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.total += record.x
        self.seen.append(record.x)
        ctx.set_timer(record.at, "1s")
        yield record.k, self.total
        if record.x == 5:
            raise ValueError("five")

    def on_timer(self, at_us: int, ctx: Any) -> Any:
        yield ctx.key, -len(self.seen)
        if self.total == 4:
            raise KeyError("four")


def test_what_a_failed_handler_has_done_is_undone() -> None:
    rows = [("a", 1 * S, 1), ("a", 2 * S, 5), ("a", 3 * S, 2), ("b", 4 * S, 4)]
    made = timed(rows).process(Faulty, schema=OUT, name="f", on_error="dead_letter")
    harness = Harness(made.to(ps.memory()))
    harness.run()
    assert [tuple(row.values()) for row in harness.rows()] == [("a", 1), ("a", 3), ("b", 4), ("a", -2), ("a", -2)]
    record, timer = harness.dead_letters()
    assert (record["operation"], record["error"]) == ("f", "ValueError: five")
    assert timer["record"] == '{"key":"b","timer":5000000}'
    assert harness.count("f", "dead_letters") == 2


def test_a_failed_handler_fails_the_job_by_name() -> None:
    with pytest.raises(OperationFailed, match="five") as caught:
        ps.testing.collect(timed([("a", 1 * S, 5)]).process(Faulty, schema=OUT, name="f"))
    assert caught.value.operation == "f"
    with pytest.raises(OperationFailed, match="four"):
        ps.testing.collect(timed([("a", 1 * S, 4)]).process(Faulty, schema=OUT, name="f"))


def test_time_to_live_is_measured_in_event_time_from_the_last_record() -> None:
    class Recent(Process):
        short = ps.state.list(int, ttl="5s")
        long = ps.state.value(int, default=0, ttl="20s")

        def on_record(self, record: Any, ctx: Any) -> Any:
            self.short.append(record.x)
            self.long += 1
            yield record.k, 100 * len(self.short) + self.long

    rows = [("a", t * S, 0) for t in (0, 5, 11, 40)] + [("b", 41 * S, 0)]
    made = timed(rows).process(Recent, schema=OUT, name="r")
    assert [x for k, x in results(made) if k == "a"] == [101, 202, 103, 101]
    harness = Harness(timed([*rows[:1], At("1s"), ("b", 60 * S, 0), At("9s"), ("b", 60 * S, 0)]).process(
        Recent, schema=OUT
    ).to(ps.memory()))  # fmt: skip
    harness.advance("8s")
    (unit,) = (each for each in harness._cluster.workers[0].units if each.chain.stateful is not None)
    assert list(unit.chain.stateful.table.objects) == ["b"]  # type: ignore[union-attr]


def test_time_to_live_is_measured_by_the_clock_where_there_is_no_event_time() -> None:
    class Recent(Process):
        n = ps.state.value(int, default=0, ttl="5s")

        def on_record(self, record: Any, ctx: Any) -> Any:
            self.n += 1
            yield record.k, self.n

    rows = [("a", 0, 0), At("5s"), ("a", 0, 0), At("11s"), ("a", 0, 0), At("30s"), ("b", 0, 0)]
    harness = Harness(keyed(rows).process(Recent, schema=OUT).to(ps.memory()))
    harness.advance("25s")
    assert [row["x"] for row in harness.rows()] == [1, 2, 1]
    (unit,) = (each for each in harness._cluster.workers[0].units if each.chain.stateful is not None)
    assert not unit.chain.stateful.table.objects  # type: ignore[union-attr]


def test_what_is_kept_must_be_declared_and_of_its_type() -> None:
    class Sloppy(Process):
        def on_record(self, record: Any, ctx: Any) -> Any:
            self.last = record.x

    class Wrong(Process):
        n = ps.state.value(int, default=0)

        def on_record(self, record: Any, ctx: Any) -> Any:
            self.n = "one"

    with pytest.raises(PenstockError, match=r"self\.last, which is no declared state"):
        ps.testing.collect(keyed([("a", 0, 1)]).process(Sloppy, schema=OUT))
    with pytest.raises(PenstockError, match=r"self\.n is 'one'"):
        ps.testing.collect(keyed([("a", 0, 1)]).process(Wrong, schema=OUT))
    with pytest.raises(TypeMismatch, match="cannot be kept"):
        ps.state.value(Harness)
    with pytest.raises(TypeMismatch, match="default"):
        ps.state.value(int, default="x")
    with pytest.raises(InvalidOption, match="ttl"):
        ps.state.list(int, ttl="soon")


def test_wrong_use_is_refused_before_anything_starts() -> None:
    with pytest.raises(TypeMismatch, match=r"ps\.Process"):
        keyed().process(dict, schema=OUT)
    with pytest.raises(TypeMismatch, match="neither on_record nor on_batch"):
        keyed().process(Process, schema=OUT)
    with pytest.raises(InvalidOption, match="order"):
        keyed().process(Count, schema=OUT, order="time")
    with pytest.raises(InvalidOption, match="order"):
        timed().process(Count, schema=OUT, order="tim")
    with pytest.raises(PenstockError, match="x"):
        keyed().process(Count, schema=OUT, time="x")

    class Alarm(Process):
        def on_record(self, record: Any, ctx: Any) -> Any:
            ctx.set_timer(record.at, "2s")

    with pytest.raises(OperationFailed, match="no event time"):
        ps.testing.collect(keyed([("a", 0, 1)]).process(Alarm, schema=OUT))
    with pytest.raises(OperationFailed, match="no handler"):
        ps.testing.collect(timed([("a", 0, 1)]).process(Alarm, schema=OUT))


def test_a_timer_that_sets_itself_again_for_ever_ends_the_job_with_a_hint() -> None:
    class Beat(Process):
        stops = True

        def on_record(self, record: Any, ctx: Any) -> Any:
            ctx.set_timer(record.at)

        def on_timer(self, at_us: int, ctx: Any) -> Any:
            if self.stops and ctx.ending:
                yield ctx.key, at_us
                return
            ctx.set_timer(at_us, "1s")

    assert results(timed([("a", S, 1)]).process(Beat, schema=OUT)) == [("a", S)]
    Beat.stops = False
    with pytest.raises(PenstockError, match=r"ctx\.ending"):
        ps.testing.collect(timed([("a", S, 1)]).process(Beat, schema=OUT))

    class Same(Beat):
        def on_timer(self, at_us: int, ctx: Any) -> Any:
            ctx.set_timer(at_us)

    with pytest.raises(OperationFailed, match=BadRecord.code):
        ps.testing.collect(timed([("a", S, 1)]).process(Same, schema=OUT))


def plan_of(function: type[Process], **options: Any) -> Plan:
    made = timed([("a", 0, 1)]).process(function, schema=OUT, name="p", **options)
    return Plan.of(Graph.check(made.to(ps.memory()).nodes()), Options.of(name="t", parallelism=2))


def test_a_checkpoint_fits_a_class_with_more_states_but_not_with_other_types() -> None:
    class More(Count):
        words = ps.state.map(str, int)

    class Other(Process):
        n = ps.state.value(float, default=0.0)
        on_record = Count.on_record

    stored = anchors(plan_of(Count))
    assert match(stored, plan_of(More), "c") == {0: 0, 1: 1}
    assert match(anchors(plan_of(More)), plan_of(Count), "c") == {0: 0, 1: 1}
    with pytest.raises(CheckpointMismatch, match=r"n: int.* now .*n: float"):
        match(stored, plan_of(Other), "c")


def test_a_state_that_was_added_begins_with_its_default() -> None:
    class More(Count):
        words = ps.state.map(str, int)
        limit = ps.state.value(int, default=7)

    schema = Schema.parse(SCHEMA)
    before = ProcessState(Processing(Count(), ("k",), Schema.parse(OUT))).build(schema, Errors("p"))
    assert isinstance(before, ProcessOperator)
    before.process([schema.record_type("a", 0, 0)] * 3)
    after = ProcessState(Processing(More(), ("k",), Schema.parse(OUT))).build(schema, Errors("p"))
    assert isinstance(after, ProcessOperator)
    restore(after, [snapshot(before, True)])
    held = after.table.objects["a"]
    assert (held.n, held.words, held.limit) == (3, {}, 7)


def test_explain_tells_what_is_kept() -> None:
    text = explain_plan(plan_of(Count, order="time"))
    assert "Count by k; event time at, in its order; keeps n int" in text
    assert "shuffle by k" in text


def test_several_columns_may_be_the_key() -> None:
    class Pair(Process):
        n = ps.state.value(int, default=0)

        def on_record(self, record: Any, ctx: Any) -> Any:
            self.n += 1
            k, x = ctx.key
            yield k, 10 * x + self.n

    stream = ps.stream("in", ps.records([("a", 0, 1), ("a", 0, 2), ("a", 0, 1)], schema=SCHEMA)).key_by("k", "x")
    assert sorted(results(stream.process(Pair, schema=OUT))) == [("a", 11), ("a", 12), ("a", 21)]
