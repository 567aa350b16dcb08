"""Alternatives with state of which one fails: the next best goes on with its state; nothing is missing or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.memory import At
from penstock.errors import OperationFailed, PenstockError
from penstock.operators.keyed.process.table import Table
from penstock.testing import Harness

OUT = "k string, n bigint, by string"
IN = "k string, i bigint, at timestamp"


class Weather:
    """When the service is away: at the calls of these numbers, counted in all processes of the test together."""

    def __init__(self) -> None:
        self.down: Callable[[int], bool] = lambda call: False
        self.calls = 0

    def ask(self) -> None:
        self.calls += 1
        if self.down(self.calls):
            raise ConnectionError("away")


WEATHER = Weather()


class Local(ps.Process):
    """Numbers the records of a key, and tells of its number again when event time has passed."""

    n = ps.state.value(int, default=0)
    by = "local"

    def ask(self) -> None:
        """Nobody is asked."""

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.n += 1  # before it fails: this has to be undone
        ctx.set_timer(record.at, "30ms")
        self.ask()
        yield ctx.key, self.n, self.by

    def on_timer(self, at_us: int, ctx: Any) -> Any:
        self.ask()
        yield ctx.key, -self.n, self.by


class Remote(Local):
    """The same, asked of a service."""

    by = "remote"

    def ask(self) -> None:
        WEATHER.ask()


class Listing(ps.Process):
    """The same, with state of another type."""

    seen = ps.state.list(int)

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.seen.append(record.i)
        ctx.set_timer(record.at, "30ms")
        yield ctx.key, len(self.seen), "listing"

    def on_timer(self, at_us: int, ctx: Any) -> Any:
        yield ctx.key, -len(self.seen), "listing"


CONVERT = {
    ("remote", "listing"): lambda key, states: {"seen": [0] * states["n"]},
    ("listing", "remote"): lambda key, states: {"n": len(states["seen"])},
}


def rows_in(count: int = 60, keys: int = 3) -> list[Any]:
    found: list[Any] = []
    for i in range(count):
        found += [At(i / 50), (f"k{i % keys}", i, 1_000_000 + i * 20_000)]
    return found


def source(script: list[Any], **options: Any) -> Any:
    records = ps.stream("in", ps.records(script, schema=IN))
    return records.with_watermark("at", "0s").key_by("k")


def processed(stream: Any, *, order: str | None = None, on_error: str = "fail", other: bool = False) -> Any:
    options: dict[str, Any] = {"schema": OUT, "time": "at", "on_error": on_error}
    if order is not None:
        options["order"] = order
    if other:
        return stream.alternatives(
            "count",
            remote=lambda s: s.process(Remote, **options),
            listing=lambda s: s.process(Listing, **options),
            prefer=["remote", "listing"],
            convert=CONVERT,
        )
    return stream.alternatives(
        "count",
        remote=lambda s: s.process(Remote, **options),
        local=lambda s: s.process(Local, **options),
        prefer=["remote", "local"],
    )


def expected(script: list[Any]) -> tuple[dict[str, list[int]], Counter[str]]:
    """The numbers of each key in order, and how many timers fire."""
    keys = [each[0] for each in script if not isinstance(each, At)]
    return {key: list(range(1, keys.count(key) + 1)) for key in keys}, Counter(keys)


def check(rows: list[dict[str, Any]], script: list[Any]) -> None:
    numbers, timers = expected(script)
    for key, wanted in numbers.items():
        assert [row["n"] for row in rows if row["k"] == key and row["n"] > 0] == wanted
    assert Counter(row["k"] for row in rows if row["n"] < 0) == timers


@pytest.fixture(autouse=True)
def calm() -> None:
    WEATHER.__init__()  # type: ignore[misc]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 0, 5, 40, 300])), min_size=1, max_size=30),
    st.sets(st.integers(1, 60), max_size=20),
    st.sampled_from(["fail", "skip", "dead_letter"]),
    st.sampled_from([None, "time"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 5),
)
def test_whatever_call_fails_the_numbers_go_on(
    visited: Any, failing: set[int], on_error: str, order: str | None, copies: bool, other: bool, block: int
) -> None:
    script: list[Any] = []
    now_ms = 0
    for i, (key, wait_ms) in enumerate(visited):
        now_ms += wait_ms
        # Records of a block have different times, so that each sets a timer of its own.
        script += [At(now_ms // block * block / 1000), (key, i, 1_000_000 + now_ms * 1_000 + i)]
    WEATHER.__init__()  # type: ignore[misc]
    WEATHER.down = lambda call: call in failing
    with pytest.MonkeyPatch.context() as patch:
        if copies:  # as where the class of the keys' objects cannot be exchanged
            patch.setattr(Table, "become", lambda self, kind: False)
        stream = processed(source(script), order=order, on_error=on_error, other=other)
        harness = Harness(stream.to(ps.memory()), epoch="100ms")
        harness.run()
    check(harness.rows(), script)


def test_a_service_that_is_away_for_a_while_is_used_again_when_it_is_back() -> None:
    script = rows_in(400)
    WEATHER.down = lambda call: 30 < call < 34
    harness = Harness(processed(source(script)).to(ps.memory()), epoch="100ms")
    harness.run()
    check(harness.rows(), script)
    by = [row["by"] for row in harness.rows()]
    assert by[0] == by[-1] == "remote"
    assert "local" in by
    changes = [each.reason for each in harness._cluster.adaptation.switches]
    assert "remote has failed (ConnectionError: away); it is tried again in 1s" in changes
    assert "remote is better, and is tried again" in changes


def test_where_nobody_can_take_over_the_policy_has_the_record() -> None:
    WEATHER.down = lambda call: call == 5
    stream = source(rows_in(9, 1)).alternatives(
        "count",
        remote=lambda s: s.process(Remote, schema=OUT, time="at", on_error="skip"),
        again=lambda s: s.process(Remote, schema=OUT, time="at", on_error="skip"),
        prefer=["remote", "again"],
    )
    WEATHER.down = lambda call: call in (5, 6)
    harness = Harness(stream.to(ps.memory()))
    harness.run()
    numbers = [row["n"] for row in harness.rows() if row["n"] > 0]
    assert numbers == list(range(1, 9))  # one was skipped: the others have gone on from the state before it


def failing_map(at: int) -> Callable[[Any], Any]:
    def ask(r: Any) -> Any:
        WEATHER.calls += 1
        if WEATHER.calls == at:
            raise TimeoutError("too slow")
        return tuple(getattr(r, each) for each in r._columns)

    return ask


@pytest.mark.parametrize("at", [1, 3, 6])
def test_an_operation_behind_the_state_fails(at: int) -> None:
    script = rows_in(60)
    windowed = ps.tumbling("200ms", on="at")
    wanted = ps.testing.collect(source(script).window(windowed).aggregate(n=ps.agg.count()))
    stream = source(script).alternatives(
        "count",
        remote=lambda s: (
            s.window(windowed)
            .aggregate(n=ps.agg.count())
            .map(failing_map(at), schema="k string, window_start timestamp, window_end timestamp, n bigint")
        ),
        local=lambda s: s.window(windowed).aggregate(n=ps.agg.count()),
        prefer=["remote", "local"],
    )
    harness = Harness(stream.to(ps.memory()))
    harness.run()
    assert sorted(map(repr, harness.rows())) == sorted(map(repr, wanted))


class Asking(ps.agg.Mergeable):
    """Counts, and asks a service at each record, or where two counts come together."""

    def __init__(self, where: str) -> None:
        self._where = where

    def init(self) -> Any:
        return 0

    def add(self, state: Any, record: Any) -> Any:
        if self._where == "add":
            WEATHER.ask()
        return state + 1

    def merge(self, left: Any, right: Any) -> Any:
        if self._where == "merge":
            WEATHER.ask()
        return left + right

    def result(self, state: Any) -> Any:
        return state


def asking(where: str) -> Any:
    return source(rows_in(40)).alternatives(
        "count",
        remote=lambda s: s.aggregate(n=ps.agg.custom(Asking(where), type="bigint")),
        local=lambda s: s.aggregate(n=ps.agg.custom(Asking("nowhere"), type="bigint")),
        prefer=["remote", "local"],
        convert=dict.fromkeys([("remote", "local"), ("local", "remote")], lambda key, state: state),
    )


def test_an_aggregate_that_fails_on_a_record_has_changed_nothing() -> None:
    WEATHER.down = lambda call: call in (5, 6)
    harness = Harness(asking("add").to(ps.memory()))
    harness.run()
    assert {row["k"]: row["n"] for row in harness.rows()} == {"k0": 14, "k1": 13, "k2": 13}


def test_an_aggregate_that_fails_in_the_middle_of_a_block_fails_the_job() -> None:
    WEATHER.down = lambda call: call == 5
    with pytest.raises(PenstockError, match="away"):
        Harness(asking("merge").to(ps.memory())).run()


def test_errors_of_an_alternative_are_no_dead_letters() -> None:
    """Without state too: what the next one can compute is not put aside."""

    def away(r: Any) -> Any:
        raise ConnectionError("away")

    stream = ps.stream("in", ps.records([("a", 1, 1)], schema=IN)).alternatives(
        "score",
        remote=lambda s: s.map(away, schema=IN, on_error="dead_letter"),
        local=lambda s: s.map(lambda r: r, schema=IN),
        prefer=["remote", "local"],
    )
    assert len(ps.testing.collect(stream)) == 1


def test_what_nobody_can_compute_follows_its_policy() -> None:
    def away(r: Any) -> Any:
        raise ConnectionError("away")

    def pipeline(on_error: str) -> Any:
        return ps.stream("in", ps.records([("a", 1, 1), ("b", 2, 2)], schema=IN)).alternatives(
            "score",
            remote=lambda s: s.map(away, schema=IN),
            local=lambda s: s.map(away, schema=IN, on_error=on_error),
            prefer=["remote", "local"],
        )

    assert ps.testing.collect(pipeline("skip")) == []
    with pytest.raises(OperationFailed, match="away"):
        ps.testing.collect(pipeline("fail"))
