"""Process functions as alternatives: states and timers are handed over, converted or built up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.memory import At
from penstock.errors import TypeMismatch
from penstock.operators.keyed.process.table import Table
from penstock.pipeline.streams.stream import Stream
from penstock.testing import Harness

OUT = "k string, n bigint, by string"


class Counting(ps.Process):
    """Numbers the records of a key, and tells of a pause by a timer of the clock."""

    n = ps.state.value(int, default=0)
    last = ps.state.value(int, default=0)

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.n += 1
        self.last = ctx.set_clock_timer(0.2) or 0
        yield ctx.key, self.n, "plain"

    def on_clock(self, at_us: int, ctx: Any) -> Any:
        yield ctx.key, -self.n, "plain"


class Careful(Counting):
    """The same numbers under another name; what it gives is told apart."""

    def on_record(self, record: Any, ctx: Any) -> Any:
        for key, n, _ in super().on_record(record, ctx):
            yield key, n, "careful"

    def on_clock(self, at_us: int, ctx: Any) -> Any:
        yield ctx.key, -self.n, "careful"


class Listing(ps.Process):
    """Keeps the records instead of their number."""

    seen = ps.state.list(int)

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.seen.append(record.i)
        ctx.set_clock_timer(0.2)
        yield ctx.key, len(self.seen), "listing"

    def on_clock(self, at_us: int, ctx: Any) -> Any:
        yield ctx.key, -len(self.seen), "listing"


CONVERT = {
    ("plain", "listing"): lambda key, states: {"seen": list(range(states["n"]))},
    ("careful", "listing"): lambda key, states: {"seen": list(range(states["n"]))},
    ("listing", "plain"): lambda key, states: {"n": len(states["seen"])},
    ("listing", "careful"): lambda key, states: {"n": len(states["seen"])},
}


def visits(script: Any) -> Any:
    return ps.stream("in", ps.records(script, schema="k string, i bigint")).key_by("k")


def counted(stream: Any, **options: Any) -> Stream:
    made: Stream = stream.alternatives(
        "count",
        plain=lambda s: s.process(Counting, schema=OUT),
        careful=lambda s: s.process(Careful, schema=OUT),
        listing=lambda s: s.process(Listing, schema=OUT),
        **{"convert": CONVERT, **options},
    )
    return made


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([0, 0, 10, 150, 300])), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(1, 700), st.sampled_from(["plain", "careful", "listing", "crash"])), max_size=5),
    st.booleans(),
)
def test_numbers_go_on_whoever_counts(visited: Any, acts: Any, copies: bool) -> None:
    script: list[Any] = []
    now_ms, expected = 0, {}
    for i, (key, wait_ms) in enumerate(visited):
        now_ms += wait_ms
        script += [At(now_ms / 1000), (key, i)]
        expected[key] = expected.get(key, 0) + 1
    with pytest.MonkeyPatch.context() as patch:
        if copies:  # as where the class of the keys' objects cannot be exchanged
            patch.setattr(Table, "become", lambda self, kind: False)
        harness = Harness(counted(visits(script)).to(ps.memory()), epoch="100ms")
        for after, act in acts:
            if not harness.ended:
                harness.advance(after / 1000)
            if not harness.ended:
                if act == "crash":
                    harness._cluster.crash(0)
                else:
                    harness.use("count", act)
        harness.run()
    rows = harness.rows()
    for key, count in expected.items():
        own = [row["n"] for row in rows if row["k"] == key]
        assert [n for n in own if n > 0] == list(range(1, count + 1))
        # Every timer fires once, also one that was set by the alternative before.
        assert own[-1] == -count
    if all(act == "crash" for _, act in acts):
        assert {row["by"] for row in rows} == {"plain"}


def test_a_timer_that_one_has_set_fires_in_the_other() -> None:
    script = [("a", 1), At("100ms"), ("a", 2), At("1s"), ("a", 3)]
    harness = Harness(counted(visits(script)).to(ps.memory()), epoch="50ms")
    harness.advance("250ms")
    harness.use("count", "careful")
    harness.advance("500ms")
    told = [(row["n"], row["by"]) for row in harness.rows()]
    assert told[-1] == (-2, "careful")
    harness.use("count", "listing")
    harness.run()
    assert [(row["n"], row["by"]) for row in harness.rows()][-2:] == [(3, "listing"), (-3, "listing")]


def test_one_that_cannot_be_given_the_state_is_fed_for_as_long_as_is_said() -> None:
    script: list[Any] = []
    for i in range(100):
        script += [At(i / 100), ("a", i)]
    stream = counted(visits(script), convert=None, warm_up="300ms")
    harness = Harness(stream.to(ps.memory()))
    harness.advance("200ms")
    harness.use("count", "listing")
    harness.run()
    rows = [row for row in harness.rows() if row["n"] > 0]
    first = [row["by"] for row in rows].index("listing")
    # The other one has seen what came in the warm-up, and nothing of it was sent twice.
    assert first == pytest.approx(41, abs=5)
    assert rows[first]["n"] == pytest.approx(31, abs=3)
    assert len(rows) == 100


def test_what_cannot_be_exchanged_is_refused() -> None:
    timed = ps.stream("in", ps.records([], schema="k string, i bigint, at timestamp")).key_by("k")
    with pytest.raises(TypeMismatch, match="in the order of time, and some do not"):
        timed.alternatives(
            "count",
            a=lambda s: s.process(Counting, schema=OUT, time="at", order="time"),
            b=lambda s: s.process(Careful, schema=OUT, time="at"),
        )
    with pytest.raises(TypeMismatch, match="side outputs"):
        timed.alternatives(
            "count",
            a=lambda s: s.process(Counting, schema=OUT, outputs={"other": OUT}),
            b=lambda s: s.process(Careful, schema=OUT),
        )
    with pytest.raises(TypeMismatch, match="a process function of an aggregate"):
        timed.alternatives(
            "count",
            a=lambda s: s.process(Counting, schema="k string, n bigint"),
            b=lambda s: s.aggregate(n=ps.agg.count()),
            convert={("a", "b"): lambda key, states: [states["n"]], ("b", "a"): lambda key, state: {"n": state[0]}},
        )
