"""PySpark's StatefulProcessor classes run unchanged: compared with PySpark's own tester where that can run them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

import penstock as ps
from penstock.connectors.memory import At
from penstock.control.resume import anchors
from penstock.errors import InvalidOption, OperationFailed, TypeMismatch
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing import Harness

S = 1_000_000
IN = "user string, at timestamp, page string"
OUT = StructType([StructField("user", StringType()), StructField("n", LongType()), StructField("page", StringType())])


class Pages(StatefulProcessor):  # type: ignore[misc]
    """Uses every kind of state; Spark's names, Spark's types."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", StructType([StructField("n", LongType())]))
        self.pages = handle.getListState("pages", "page string, at timestamp")
        self.visits = handle.getMapState("visits", "page string", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        (user,) = key
        for row in rows:
            n = 1 + (self.count.get()[0] if self.count.exists() else 0)
            self.count.update((n,))
            self.pages.appendValue((row.page, row.at))
            before = self.visits.getValue((row.page,))
            self.visits.updateValue((row.page,), ((before[0] if before is not None else 0) + 1,))
            if n == 4:
                for (page,), (times,) in sorted(self.visits.iterator()):
                    yield Row(user=user, n=times, page=page)
                first = next(self.pages.get())
                assert isinstance(first[1], datetime)
                yield Row(user=user, n=first[1].second, page=f"first {first[0]}")
                self.count.clear()
                self.pages.clear()
                self.visits.clear()

    def close(self) -> None:
        pass


ROWS = [
    ("a", 1 * S, "x"),
    ("b", 2 * S, "y"),
    ("a", 3 * S, "x"),
    ("a", 4 * S, "z"),
    ("b", 5 * S, "y"),
    ("a", 6 * S, "x"),
]
ROWS += [("a", 7 * S, "q"), ("b", 8 * S, "y"), ("b", 9 * S, "w")]


def keyed(rows: list[Any] | None = None) -> Any:
    return ps.stream("in", ps.records(ROWS if rows is None else rows, schema=IN)).key_by("user")


def results(stream: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in ps.testing.collect(stream, parallelism=2))


def test_a_processor_gives_what_sparks_own_tester_gives() -> None:
    tws_tester = pytest.importorskip("pyspark.sql.streaming.tws_tester", reason="this PySpark has no tester")
    tester = tws_tester.TwsTester(Pages())
    expected = []
    for user, at, page in ROWS:
        row = Row(user=user, at=datetime.utcfromtimestamp(at / S), page=page)
        expected += [tuple(each) for each in tester.test(user, [row])]
    assert len(expected) == 6
    assert results(keyed().transform_with_state(Pages(), schema=OUT)) == sorted(expected)


def test_states_survive_a_crash_and_are_forgotten_when_cleared() -> None:
    rows = [each for row in ROWS for each in (row, At(f"{row[1] // S}s"))]
    harness = Harness(keyed(rows).transform_with_state(Pages(), schema=OUT).to(ps.memory()), parallelism=2)
    for _ in range(3):
        harness.advance("2.3s")
        harness._cluster.crash(0)
        harness._cluster.crash(1)
    harness.run()
    found = sorted(tuple(row.values()) for row in harness.rows())
    assert found == results(keyed().transform_with_state(Pages(), schema=OUT))


class InPandas(StatefulProcessor):  # type: ignore[misc]
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        n = self.count.get()[0] if self.count.exists() else 0
        for frame in rows:
            n += len(frame)
            last = frame["at"].max()
        self.count.update((n,))
        yield pd.DataFrame({"n": [n], "user": [key[0]], "at": [last], "none": [None]})

    def close(self) -> None:
        pass


def test_a_processor_in_pandas() -> None:
    stream = keyed(ROWS[:1]).transform_with_state_in_pandas(InPandas(), schema="user string, at timestamp, n bigint")
    assert results(stream) == [("a", 1 * S, 1)]


class Idle(StatefulProcessor):  # type: ignore[misc]
    """Tells of users who were silent, by the time that it is given."""

    def __init__(self, wait_ms: int) -> None:
        self.wait_ms = wait_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "ms bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        for row in rows:
            ms = int((row.at - datetime(1970, 1, 1)).total_seconds() * 1000) if now_ms < 0 else now_ms
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(ms + self.wait_ms)
            self.last.update((ms,))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(user=key[0], n=expiredTimerInfo.getExpiryTimeInMs() - self.last.get()[0], page="idle")
        self.last.clear()

    def close(self) -> None:
        pass


def test_event_time_timers_follow_the_watermark() -> None:
    rows = [("a", 1 * S, ""), ("a", 2 * S, ""), ("b", 8 * S, ""), At("1s"), ("a", 1 * S, "late"), ("b", 60 * S, "")]
    stream = ps.stream("in", ps.records(rows, schema=IN)).with_watermark("at", "1s").key_by("user")
    made = stream.transform_with_state(Idle(3000), schema=OUT, time_mode="EventTime", name="idle")
    harness = Harness(made.to(ps.memory()))
    harness.run()
    assert [tuple(row.values()) for row in harness.rows()] == [
        ("a", 3000, "idle"),
        ("b", 3000, "idle"),
    ]
    assert harness.count("idle", "late") == 1


def test_processing_time_timers_follow_the_clock() -> None:
    rows = [("a", 0, ""), At("2s"), ("a", 0, ""), At("20s"), ("b", 0, "")]
    made = keyed(rows).transform_with_state(Idle(3000), schema=OUT, time_mode="ProcessingTime")
    harness = Harness(made.to(ps.memory()), epoch="100ms")
    harness.advance("4.5s")
    assert harness.rows() == []
    harness.advance("1s")
    assert [tuple(row.values()) for row in harness.rows()] == [("a", 3000, "idle")]


def test_values_live_no_longer_than_their_time() -> None:
    class Short(Pages):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.seen = handle.getMapState("seen", "page string", "n bigint", 5000)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
            for row in rows:
                self.seen.updateValue((row.page,), (1,))
                yield Row(key[0], len(list(self.seen.keys())), row.page)

    rows = [("a", 0, "x"), At("3s"), ("a", 0, "y"), At("6s"), ("a", 0, "z")]
    made = keyed(rows).transform_with_state(Short(), schema=OUT, time_mode="ProcessingTime")
    assert [row["n"] for row in ps.testing.collect(made)] == [1, 2, 2]
    with pytest.raises(InvalidOption, match="ttlDurationMs of 'seen'"):
        keyed().transform_with_state(Short(), schema=OUT)


def test_what_cannot_run_is_refused_before_anything_starts() -> None:
    class Odd(Pages):
        def init(self, handle: StatefulProcessorHandle) -> None:
            handle.getValueState("price", "p interval year to month")

    with pytest.raises(TypeMismatch, match="StatefulProcessor"):
        keyed().transform_with_state(Pages, schema=OUT)
    with pytest.raises(InvalidOption, match="time_mode"):
        keyed().transform_with_state(Pages(), schema=OUT, time_mode="Event")
    with pytest.raises(InvalidOption, match="no event time"):
        keyed().transform_with_state(Pages(), schema=OUT, time_mode="EventTime")
    with pytest.raises(TypeMismatch, match="state 'price'"):
        keyed().transform_with_state(Odd(), schema=OUT)
    with pytest.raises(OperationFailed, match='time_mode="None"'):
        ps.testing.collect(keyed().transform_with_state(Idle(1), schema=OUT))


def test_its_states_are_part_of_the_checkpoint() -> None:
    stream = keyed().transform_with_state(Pages(), schema=OUT, name="p")
    plan = Plan.of(Graph.check(stream.to(ps.memory()).nodes()), Options.of(name="t", parallelism=1))
    (anchor,) = (each for each in anchors(plan) if each.name == "p")
    assert "visits: map (page string) of (n bigint)" in anchor.signature
