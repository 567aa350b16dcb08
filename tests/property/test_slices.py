"""Random chains of operations, a part of them as a slot, or a replica, runs it: nothing tells that from the chain."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.base import Run, Sink
from penstock.dataset import pack, unpack
from penstock.engine.chain import Chain, SinkOperator
from penstock.engine.edges import READER, EdgeOutput, Span
from penstock.engine.event_time import Reading
from penstock.engine.lineage import Place
from penstock.engine.passed import Passed
from penstock.engine.sections import Section, pack_rows, rows_opener
from penstock.engine.slices import PIECE_NS, PIECE_RECORDS_FIRST, Outcome, Slice
from penstock.engine.snapshot import OpCounters
from penstock.errors import PenstockError
from penstock.operators import Combine
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol.slots import Side, TimesRead
from penstock.types import Record, Schema, record_dict

BASE = Schema.parse("k string, n bigint, d double, t timestamp")
DUE_US = 1_000
POLICIES = st.sampled_from(["fail", "skip", "dead_letter"])
NAMES = ps.table(
    [{"key": "a", "label": "first"}, {"key": "b", "label": None}], schema="key string, label string", key="key"
)
Step = Callable[[ps.Stream], ps.Stream]


def _some_fail(record: Any) -> Any:
    if record.n is not None and record.n % 3 == 0:
        raise ValueError(f"three divides {record.n}")
    return record.k, record.n, record.d, record.t


def _copies(record: Any) -> Any:
    if record.k == "b":
        raise KeyError("b")
    return [(record.k, record.n, record.d, record.t)] * ((record.n or 0) % 3)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """An operation that takes, and gives, records of the one schema."""
    kind = draw(st.integers(0, 6))
    policy, number = draw(POLICIES), draw(st.integers(-3, 3))
    n, d = ps.col("n"), ps.col("d")
    if kind == 0:
        return lambda stream: stream.filter(n > number, on_error=policy)
    if kind == 1:
        return lambda stream: stream.filter((n * (1 << 61) > number) | (d > 0.5), on_error=policy)  # may overflow
    if kind == 2:
        return lambda stream: stream.with_columns(n=n * (1 << 62) + number, on_error=policy)  # may overflow
    if kind == 3:
        return lambda stream: stream.with_columns(d=d / 2 + number, k=ps.col("k"), on_error=policy)
    if kind == 4:
        return lambda stream: stream.map(_some_fail, schema=BASE, on_error=policy)
    if kind == 5:
        return lambda stream: stream.flat_map(_copies, schema=BASE, on_error=policy)
    how = draw(st.sampled_from(["inner", "left"]))
    return lambda stream: stream.lookup(NAMES, on="k", how=how).select("k", "n", "d", "t")


def _sunk(stream: ps.Stream) -> ps.Pipeline:
    return stream.to(ps.memory())


def _windowed(stream: ps.Stream) -> ps.Pipeline:
    window = ps.tumbling("10s", on="t", lateness="1s")
    return stream.key_by("k").window(window).aggregate(c=ps.agg.count(), s=ps.agg.max("n")).to(ps.memory())


def _sliding(stream: ps.Stream) -> ps.Pipeline:
    return stream.key_by("k").window("10s", on="t", slide="5s").aggregate(c=ps.agg.count()).to(ps.memory())


def _counted(stream: ps.Stream) -> ps.Pipeline:
    return stream.key_by("k").aggregate(c=ps.agg.count(), m=ps.agg.min("d")).to(ps.memory())


def _keyed(stream: ps.Stream) -> ps.Pipeline:
    return stream.key_by("k", "n").map(_some_fail, schema=BASE).to(ps.memory())


def _split(stream: ps.Stream) -> ps.Pipeline:
    parts = stream.split(low=ps.col("n") < 0, high=ps.col("d") > 1.0)
    return parts["low"].to(ps.memory(), name="a") + parts["high"].key_by("k").count().to(ps.memory(), name="b")


def _twice(stream: ps.Stream) -> ps.Pipeline:
    return stream.to(ps.memory(), name="a") + stream.key_by("k").count().to(ps.memory(), name="b")


def _joined(stream: ps.Stream) -> ps.Pipeline:
    other = ps.stream("other", ps.records([("a", 1)], schema="k string, u timestamp"))
    return stream.join(other, on="k", within="1s", left_time="t", right_time="u").to(ps.memory())


ENDS = [_sunk, _windowed, _sliding, _counted, _keyed, _split, _twice, _joined]
ROWS = st.lists(
    st.builds(
        BASE.record_type,
        st.none() | st.sampled_from(["a", "b", "c", ""]),
        st.none() | st.integers(-4, 4),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.integers(0, 60_000_000),
    ),
    max_size=25,
)


@st.composite
def plans(draw: st.DrawFn, rows: list[Record]) -> Plan:
    given = [(row.k, row.n, row.d, row.t) for row in rows]
    stream = ps.stream("in", ps.records([*given, ("a", 1, 0.5, 0)], schema=BASE, partitions=1))
    for step in draw(st.lists(steps(), max_size=4)):
        stream = step(stream)
    pipeline = draw(st.sampled_from(ENDS))(stream)
    return Plan.of(pipeline.graph(), Options.of(parallelism=draw(st.sampled_from([1, 3]))), ps.memory())


@dataclass
class Effects:
    """Everything that can be seen of a block that went through a unit."""

    written: dict[tuple[int, int], list[Any]]
    counters: list[OpCounters]
    sunk: list[bytes | None]


def _clock() -> int:
    return 0


def _exact(rows: list[Record]) -> list[Any]:
    return [repr(record_dict(row)) for row in rows]


def _seen(chain: Chain, outputs: list[EdgeOutput], counters: list[OpCounters]) -> Effects:
    for sink in chain.sinks:
        sink.prepare(1)
    return Effects(
        {
            (output.edge.id, i): _exact(block.as_rows(output.edge.schema)) if (block := log.peek(READER)) else []
            for output in outputs
            for i, log in enumerate(output.logs)
        },
        counters,
        [sink.writer.snapshot(1) for sink in chain.sinks],
    )


def in_record_form(plan: Plan, unit: UnitSpec, rows: list[Record], at: int) -> Effects:
    chain = Chain(unit, 0, plan, _clock)
    outputs = [EdgeOutput(edge, plan, 0) for edge in plan.outputs(unit.id)]
    passed = chain.push(rows, DUE_US, origin=Place(0, [Run(at, len(rows))]))
    for output in outputs:
        output.emit(Span(), passed.at(output.edge.op_index, output.edge.port))
    return _seen(chain, outputs, chain.counters())


def with_a_slice(
    plan: Plan, unit: UnitSpec, rows: list[Record], at: int, first: int, last: int, work: Slice
) -> Effects:
    """The operations before the range, the range as a slot runs it, the operations after it."""
    chain = Chain(unit, 0, plan, _clock)
    outputs = [EdgeOutput(edge, plan, 0) for edge in plan.outputs(unit.id)]
    passed = Passed([])
    passed.add(chain.push(rows, DUE_US, 0, first, Place(0, [Run(at, len(rows))])))
    schema = unit.schema_at(first)
    outcome = _last(
        work.run(unpack(pack(schema.to_batch(passed.rows)), schema), DUE_US, Place(0, [Run(at, len(rows))]))
    )
    assert outcome.due_us == DUE_US
    assert len(outcome.stages) == last - first + 1
    passed.rows = []
    if outcome.carried:
        after = unit.schema_at(last + 1)
        carried = [row for _, packed in outcome.carried for row in after.to_rows(unpack(packed, after))]
        assert len(carried) == sum(count for count, _ in outcome.carried)
        passed.add(chain.push(carried, DUE_US, last + 1, origin=Place(0, [Run(at, len(rows))])))
    for _, staged in outcome.staged:
        sink = chain.stages[last].operator
        assert isinstance(sink, SinkOperator)
        sink.adopt(staged)
    parts: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
    for part, packed in zip(outcome.parts, outcome.payloads, strict=True):
        parts.setdefault((part.edge, part.consumer), []).append((part.count, packed))
    for output in outputs:
        edge = output.edge
        if first <= edge.op_index <= last:
            output.emit_parts(Span(), {i: parts[edge.id, i] for i in range(len(output.logs)) if (edge.id, i) in parts})
        else:
            output.emit(Span(), passed.at(edge.op_index, edge.port))
    counters = chain.counters()
    for index, figures in enumerate(outcome.stages, start=first):
        counters[index] = OpCounters(
            name=counters[index].name,
            records_in=figures.records_in,
            records_out=figures.records_out,
            skipped=figures.skipped,
            retried=figures.retried,
            dead_letters=figures.dead_letters,
        )
    return _seen(chain, outputs, counters)


def _last(run: Generator[None, None, Outcome]) -> Outcome:
    """Run a micro-batch to its end."""
    while True:
        try:
            next(run)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


def _effects(run: Callable[[], Effects]) -> Effects | str:
    try:
        return run()
    except PenstockError as error:
        return f"{type(error).__name__} at {error.operation}: {error}"


@given(st.data())
def test_a_slice_does_what_the_chain_does(data: st.DataObject) -> None:
    blocks = data.draw(st.lists(ROWS, min_size=1, max_size=3), label="blocks")
    plan = data.draw(plans([row for rows in blocks for row in rows]), label="plan")
    unit = plan.units[0]
    if not unit.ops:
        return
    first = data.draw(st.integers(0, len(unit.ops) - 1), label="first")
    last = data.draw(st.integers(first, len(unit.ops) - 1), label="last")
    # A slot keeps its slices, so each is run several times, also after a run that was broken off, or between the pieces
    # of a sample.
    work = Slice(plan, unit, 0, first, last, _clock)
    at = 0
    sampling: Iterator[None] = iter(())
    for rows in blocks:
        if data.draw(st.booleans(), label="sample"):
            with suppress(PenstockError):
                sampled = unit.schema_at(first).to_batch(_passed_to(plan, unit, rows, first))
                sampling = work.sample(sampled, Place(0, [Run(at, len(rows))]))
        pieces = data.draw(st.integers(0, 40), label="pieces")
        with suppress(PenstockError):
            deque(islice(sampling, pieces), maxlen=0)
        expected = _effects(partial(in_record_form, plan, unit, list(rows), at))
        found = _effects(partial(with_a_slice, plan, unit, list(rows), at, first, last, work))
        assert found == expected
        at += len(rows)


def _passed_to(plan: Plan, unit: UnitSpec, rows: list[Record], index: int) -> list[Record]:
    return Chain(unit, 0, plan, _clock).push(list(rows), DUE_US, 0, index).rows


def test_bad_records_of_a_sample_are_no_bad_records_of_the_next_micro_batch() -> None:
    rows = [BASE.record_type("a", n, 0.5, 0) for n in range(7)]
    stream = ps.stream("in", ps.records([("a", n, 0.5, 0) for n in range(7)], schema=BASE, partitions=1))
    # Two readers: the unit ends before their sinks, so that what is sampled is also the range that is run.
    pipeline = _twice(stream.map(_some_fail, schema=BASE, on_error="dead_letter"))
    plan = Plan.of(pipeline.graph(), Options.of(parallelism=1), ps.memory())
    unit = plan.units[0]
    work = Slice(plan, unit, 0, 0, 0, _clock)
    deque(work.sample(BASE.to_batch(rows), Place(0, [])), maxlen=0)
    found = with_a_slice(plan, unit, rows, 0, 0, 0, work)
    assert found == in_record_form(plan, unit, rows, 0)
    assert found.counters[0].dead_letters == 3


@given(st.data())
def test_a_slice_that_works_piece_by_piece_does_the_same(data: st.DataObject) -> None:
    rows = data.draw(ROWS.filter(lambda rows: len(rows) > 1), label="rows")
    plan = data.draw(plans(list(rows)), label="plan")
    unit = plan.units[0]
    # The first half of an aggregation gives partials for each piece: the same counts, in other rows.
    plain = [index for index, op in enumerate(unit.ops) if op.operation.kind != "combine"]
    if not plain:
        return
    last = data.draw(st.sampled_from(plain), label="last")
    first = data.draw(st.integers(0, last), label="first")
    ticks = count(0, 2 * PIECE_NS)
    work = Slice(plan, unit, 0, first, last, lambda: next(ticks))
    work._piece_records = [1] * len(work._piece_records)
    expected = _effects(partial(in_record_form, plan, unit, list(rows), 0))
    assert _effects(partial(with_a_slice, plan, unit, list(rows), 0, first, last, work)) == expected


def test_event_time_is_that_of_all_pieces() -> None:
    times = [*range(PIECE_RECORDS_FIRST, 0, -1), 9, 7]
    stream = ps.stream("in", ps.records([("a", n) for n in times], schema="k string, t timestamp"))
    pipeline = stream.key_by("k").window(ps.tumbling("1s", on="t")).count().to(ps.memory())
    plan = Plan.of(pipeline.graph(), Options.of(parallelism=1))
    ticks = count(0, PIECE_NS)
    work = Slice(plan, plan.units[0], 0, 0, 0, lambda: next(ticks))
    schema = plan.units[0].schema
    run = work.run(schema.to_batch([schema.record_type("a", n) for n in times]), DUE_US, Place(0, [Run(0, len(times))]))
    assert next(run) is None, "more than one piece"
    outcome = _last(run)
    assert outcome.times == TimesRead(newest_us=PIECE_RECORDS_FIRST, late_at_us=1_000_000, straggles=False)
    assert [each.records_in for each in outcome.stages] == [len(times)]


def test_the_chains_hold_every_operation_that_can_be_in_batch_form() -> None:
    stream = ps.stream("in", ps.records([("a", 1, 0.5, 0)], schema=BASE))
    kinds = {
        op.operation.kind
        for end in ENDS
        for unit in Plan.of(end(stream).graph(), Options.of(parallelism=2)).units
        for op in unit.ops[unit.movable.start if unit.movable.start > 0 else 0 :]
        if not isinstance(op.operation, Sink)
    }
    assert {"combine", "split", "map"} <= kinds, kinds


@given(ROWS.filter(len), st.integers(0, 2))
def test_a_source_is_read_from_any_offset(rows: list[Record], skipped: int) -> None:
    total = 40
    fields = {"k": ps.fields.choice(["a", "b"]), "n": ps.fields.integers(0, 99)}
    source = ps.generator(fields, rate=1000, total=total, format="columns", partitions=2)
    pipeline = ps.stream("in", source).filter(ps.col("n") >= 50).to(ps.memory())
    plan = Plan.of(pipeline.graph(), Options.of(parallelism=2), start_us=1_000_000)
    unit = plan.units[0]
    work = Slice(plan, unit, 0, -1, 1, _clock)
    count = min(len(rows), total // 2 - skipped)
    columns, due_us = work.read(Place(1, [Run(skipped, count)]))
    reader = source.reader(1, 2, 1_000_000)
    reader.seek(skipped)
    polled = reader.poll(1 << 60, count)
    assert polled is not None
    assert _exact(unit.schema.to_rows(columns)) == _exact(polled.rows[:count])
    assert due_us == polled.due_us
    work.close()


# --- replicas ---------------------------------------------------------------------------------------------------------


def with_a_section(
    plan: Plan, unit: UnitSpec, rows: list[Record], at: int, first: int, last: int, work: Section, each: int
) -> Effects:
    """The operations before the range, the range in items of ``each`` records, the operations after it."""
    chain, place = Chain(unit, 0, plan, _clock), Place(0, [Run(at, len(rows))])
    outputs = [EdgeOutput(edge, plan, 0) for edge in plan.outputs(unit.id)]
    passed, came = Passed([]), Passed([])
    passed.add(chain.push(rows, DUE_US, 0, first, place))
    entered, passed.rows = passed.rows, []
    counted = [OpCounters(name=op.name) for op in unit.ops[first : last + 1]]
    for skip in range(0, len(entered), each):
        outcome = _last(work.run(work.open(pack_rows(entered[skip : skip + each])), DUE_US, place, skip))
        after = rows_opener(unit.schema_at(last + 1))
        came.add(Passed([row for _, packed in outcome.carried for row in after(packed)]))
        for side, packed in outcome.sides:
            came.add(Passed([], {(side.index, side.port): _opened(plan, unit, side, packed)}))
        for counters, figures in zip(counted, outcome.stages, strict=True):
            counters.records_in += figures.records_in
            counters.records_out += figures.records_out
            counters.skipped += figures.skipped
            counters.dead_letters += figures.dead_letters
    passed.add(chain.push(came.rows, DUE_US, last + 1, origin=place))
    passed.add(Passed([], came.sides))
    for output in outputs:
        output.emit(Span(), passed.at(output.edge.op_index, output.edge.port))
    return _seen(chain, outputs, [*chain.counters()[:first], *counted, *chain.counters()[last + 1 :]])


def _opened(plan: Plan, unit: UnitSpec, side: Side, packed: bytes) -> list[Record]:
    (schema,) = {e.schema for e in plan.outputs(unit.id) if (e.op_index, e.port) == (side.index, side.port)}
    rows: list[Record] = rows_opener(schema)(packed)
    assert len(rows) == side.count
    return rows


@settings(max_examples=40)
@given(st.data())
def test_a_section_does_what_the_chain_does(data: st.DataObject) -> None:
    blocks = data.draw(st.lists(ROWS, min_size=1, max_size=2), label="blocks")
    plan = data.draw(plans([row for rows in blocks for row in rows]), label="plan")
    unit = plan.units[0]
    if not unit.replicable:
        return
    first = data.draw(st.sampled_from(unit.replicable), label="first")
    last = data.draw(st.integers(first, unit.replicable[-1]), label="last")
    each = data.draw(st.integers(1, 25), label="each")
    if any(isinstance(op.operation, Combine) for op in unit.ops[first : last + 1]):
        each = max(map(len, blocks)) + 1  # there is a partial for each key and item: others are as right, and not equal
    work, at = Section(plan, unit, first, last, _clock), 0
    for rows in blocks:
        expected = _effects(partial(in_record_form, plan, unit, list(rows), at))
        found = _effects(partial(with_a_section, plan, unit, list(rows), at, first, last, work, each))
        if isinstance(expected, str) and each < len(rows):
            assert isinstance(found, str), "which of two bad records fails first depends on how they are cut"
        else:
            assert found == expected
        at += len(rows)


@settings(max_examples=25)
@given(st.data())
def test_rows_say_about_event_time_what_columns_say(data: st.DataObject) -> None:
    rows = data.draw(ROWS)
    plan = data.draw(plans(rows))
    timing = plan.units[0].timing
    if timing is not None and timing.index == 0:
        reading = Reading(timing)
        assert reading.read_rows(rows) == reading.read(plan.units[0].schema.to_batch(rows))
