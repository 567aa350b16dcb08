"""Process functions against a plain loop over sorted events: any cutting into blocks, any watermarks, any crash."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from states import restore, snapshot

import penstock as ps
from penstock.operators import ErrorPolicy, Errors, Processing
from penstock.operators.keyed.process import ProcessOperator, ProcessState
from penstock.types import Record, Schema

INPUT = Schema.parse("k string, at timestamp, x bigint")
OUTPUT = Schema.parse("k string, at timestamp, word string, x bigint")
ALERTS = Schema.parse("k string, x bigint")


class Watcher(ps.Process):
    """Keeps one of every kind of state, sets and takes back timers, forgets, has two outputs."""

    count = ps.state.value(int, default=0)
    recent = ps.state.list(int)
    by_value = ps.state.map(int, int)
    due = ps.state.value(int)

    def on_record(self, record: Any, ctx: Any) -> Any:
        if record.x == 13:
            ctx.emit((record.k, record.at, "never", 0))
            self.count = 1_000
            raise ValueError("13")
        self.count += 1
        self.recent = [*self.recent[-2:], record.x]
        self.by_value[record.x] = self.by_value.get(record.x, 0) + 1
        if self.due is not None and record.x % 3 == 0:
            ctx.cancel_timer(self.due)
        self.due = record.at + record.x % 5
        ctx.set_timer(self.due)
        if self.by_value[record.x] == 2:
            ctx.output("alerts", (record.k, record.x))
        yield record.k, record.at, "record", sum(self.recent) * 100 + self.count

    def on_timer(self, at_us: int, ctx: Any) -> Any:
        ctx.emit({"k": ctx.key, "at": at_us, "word": "timer", "x": sum(self.by_value.values()) - self.count})
        if self.count % 4 == 0:
            ctx.forget()
        elif self.count % 4 == 1:
            self.count += 1
            ctx.set_timer(at_us, after=0.000003)


class Together(Watcher):
    """The same over all of a key's records in a block."""

    def on_batch(self, records: list[Any], ctx: Any) -> Any:
        for record in records:
            yield from self.on_record(record, ctx)


def operator_of(function: ps.Process, policy: ErrorPolicy, *, by_time: bool) -> ProcessOperator:
    of = Processing(function, ("k",), OUTPUT, (("alerts", ALERTS),), "at", by_time)
    made = ProcessState(of).build(INPUT, Errors("watch", policy))
    assert isinstance(made, ProcessOperator)
    return made


records = st.lists(
    st.builds(INPUT.record_type, st.sampled_from(["a", "b", "c"]), st.integers(0, 40), st.integers(0, 14)), max_size=25
)
Told = dict[str, list[Any]]


def by_key(rows: list[Record]) -> Told:
    """Rows of each key, in order: keys do not know of each other."""
    found: Told = {}
    for row in rows:
        found.setdefault(row.k, []).append(row)
    return found


def run(rows: list[Record], cuts: list[int], operator: ProcessOperator, crash: Any = None) -> tuple[Told, Told, int]:
    """Give an operator records in blocks, with the watermark of what is still to come after each."""
    out: list[Record] = []
    alerts: list[Record] = []
    failed = 0

    def take(made: Any) -> None:
        nonlocal failed
        out.extend(made.rows)
        alerts.extend((made.sides or {}).get("alerts", []))
        if made.failures is not None:
            failed += made.failures.counts.skipped

    bounds = [0, *sorted({min(cut, len(rows)) for cut in cuts}), len(rows)]
    for start, end in pairwise(bounds):
        take(operator.process(rows[start:end]))
        if end < len(rows):
            take(operator.advance(min(each.at for each in rows[end:])))
        if crash is not None:
            operator = crash(operator)
    take(operator.finish())
    return by_key(out), by_key(alerts), failed


def expected(rows: list[Record]) -> tuple[Told, Told, int]:
    """A plain loop: one object for each key, records and timers in the order of time, timers first."""
    held: dict[str, dict[str, Any]] = {}
    out: list[Record] = []
    alerts: list[Record] = []
    failed = 0
    timers: list[tuple[int, str]] = []

    def state(key: str) -> dict[str, Any]:
        return held.setdefault(key, {"count": 0, "recent": [], "by": {}, "due": None, "timers": set()})

    def fire(until: float) -> None:
        while timers and timers[0][0] <= until:
            at, key = heappop(timers)
            s = state(key)
            if at not in s["timers"]:
                continue
            s["timers"].discard(at)
            out.append(OUTPUT.record_type(key, at, "timer", sum(s["by"].values()) - s["count"]))
            if s["count"] % 4 == 0:
                held.pop(key)
            elif s["count"] % 4 == 1:
                s["count"] += 1
                s["timers"].add(at + 3)
                heappush(timers, (at + 3, key))

    for r in sorted(rows, key=lambda each: (each.at, each.k, each.x)):
        fire(r.at)
        if r.x == 13:
            failed += 1
            continue
        key, at, x = r.k, r.at, r.x
        s = state(key)
        s["count"] += 1
        s["recent"] = [*s["recent"][-2:], x]
        s["by"][x] = s["by"].get(x, 0) + 1
        if s["due"] is not None and x % 3 == 0:
            s["timers"].discard(s["due"])
        s["due"] = at + x % 5
        if s["due"] not in s["timers"]:
            s["timers"].add(s["due"])
            heappush(timers, (s["due"], key))
        if s["by"][x] == 2:
            alerts.append(ALERTS.record_type(key, x))
        out.append(OUTPUT.record_type(key, at, "record", sum(s["recent"]) * 100 + s["count"]))
    fire(inf)
    return by_key(out), by_key(alerts), failed


@settings(max_examples=60)
@given(records, st.lists(st.integers(0, 25), max_size=5), st.randoms(use_true_random=False))
def test_in_the_order_of_time_results_are_those_of_a_plain_loop(rows: Any, cuts: Any, random: Any) -> None:
    random.shuffle(rows)
    made = run(rows, cuts, operator_of(Watcher(), ErrorPolicy.SKIP, by_time=True))
    assert made == expected(rows)


@settings(max_examples=60)
@given(records, st.lists(st.integers(0, 25), max_size=5), st.booleans(), st.booleans())
def test_a_crash_at_any_block_changes_nothing(rows: Any, cuts: Any, by_time: bool, batch: bool) -> None:
    kind = Together if batch else Watcher
    kept: list[bytes] = []

    def crash(operator: ProcessOperator) -> ProcessOperator:
        kept.append(snapshot(operator, full=not kept))
        again = operator_of(kind(), ErrorPolicy.SKIP, by_time=by_time)
        restore(again, kept)
        return again

    calm = run(rows, cuts, operator_of(kind(), ErrorPolicy.SKIP, by_time=by_time))
    assert run(rows, cuts, operator_of(kind(), ErrorPolicy.SKIP, by_time=by_time), crash) == calm


@settings(max_examples=60)
@given(records, st.lists(st.integers(0, 25), max_size=5), st.booleans())
def test_one_by_one_and_all_of_a_block_give_the_same(rows: Any, cuts: Any, by_time: bool) -> None:
    one = run(rows, cuts, operator_of(Watcher(), ErrorPolicy.SKIP, by_time=by_time))
    assert run(rows, cuts, operator_of(Together(), ErrorPolicy.SKIP, by_time=by_time)) == one
