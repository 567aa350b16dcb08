"""Pipelines of the simulation that have alternatives: all of them give the same results, whichever computes."""

from __future__ import annotations

from typing import Any

from penstock.expr import col
from penstock.operators import Process, Tumbling, retry
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.process import state
from penstock.pipeline.streams.stream import Stream
from penstock.testing.simulation.functions import WINDOWS, Buffering, Service, Windowing
from penstock.testing.simulation.oracle import SCHEMA, WINDOW_US, Shape

NAMES = ("one", "two", "three")
SHAPES = (
    Shape.STATELESS,
    Shape.KEYED,
    Shape.RUNNING,
    Shape.WINDOW,
    Shape.DEEP,
    Shape.CALLED,
    Shape.WINDOWING,
    Shape.BUFFERING,
)
_AWAY_US = 40_000
"""How long the service of `Failing` is away at a time, and half as long as it is there."""
_KEPT = ("key", "n", "total")
_KEPT_WINDOW = ("key", "window_start", "window_end", "n", "total")
_PAIRS = [("one", "three"), ("two", "three"), ("three", "one"), ("three", "two")]


class Failing(Windowing):
    """As `Windowing`, with a service that is away for some of the time, after the state has been changed."""

    def on_record(self, record: Any, ctx: Any) -> None:
        super().on_record(record, ctx)
        _ask(ctx.now_us)

    def on_timer(self, at_us: int, ctx: Any) -> Any:
        yield from super().on_timer(at_us, ctx)
        _ask(ctx.now_us)


def _ask(now_us: int) -> None:
    if now_us // _AWAY_US % 3 == 0:
        raise ConnectionError("away")


class Totalling(Process):
    """As `Windowing`, with states of another type."""

    counts = state.map(int, int)
    totals = state.map(int, int)

    def on_record(self, record: Any, ctx: Any) -> None:
        start = record.at - record.at % WINDOW_US
        self.counts[start] = self.counts.get(start, 0) + 1
        self.totals[start] = self.totals.get(start, 0) + record.seq
        ctx.set_timer(start + WINDOW_US)

    def on_timer(self, at_us: int, ctx: Any) -> Any:
        start = at_us - WINDOW_US
        yield ctx.key, start, at_us, self.counts.pop(start), self.totals.pop(start)

    @staticmethod
    def of_windowing(key: object, states: dict[str, Any]) -> dict[str, Any]:
        """The states of `Windowing` as these."""
        del key
        windows = states["windows"].items()
        return {"counts": {at: n for at, (n, _) in windows}, "totals": {at: total for at, (_, total) in windows}}

    @staticmethod
    def to_windowing(key: object, states: dict[str, Any]) -> dict[str, Any]:
        """These states as those of `Windowing`."""
        del key
        return {"windows": {at: [n, states["totals"][at]] for at, n in states["counts"].items()}}


def _same(r: Any) -> Any:
    return r.partition, r.seq, r.key, r.key_seq, r.at


def _swapped(key: object, state: list[Any]) -> list[Any]:
    """Of count and sum, and the other way round."""
    del key
    return state[::-1]


def with_alternatives(shape: Shape, records: Stream) -> Stream:
    """A stream of a shape, whose last operation or last but one has three alternatives."""
    both = {"n": agg.count(), "total": agg.sum("seq")}
    match shape:
        case Shape.RUNNING:
            return records.key_by("key").alternatives(
                "either",
                one=lambda s: s.aggregate(**both),
                two=lambda s: s.filter(col("seq") >= 0).key_by("key").aggregate(**both),
                three=lambda s: s.aggregate(total=agg.sum("seq"), n=agg.count()).select(*_KEPT),
                convert=dict.fromkeys(
                    [("one", "three"), ("two", "three"), ("three", "one"), ("three", "two")], _swapped
                ),
            )
        case Shape.WINDOW:
            return _windowed(records)
        case Shape.DEEP:
            again = _windowed(records).key_by("key")
            return again.aggregate(n=agg.sum("n"), total=agg.sum("total"))
        case Shape.CALLED:
            return _calling(records)
        case Shape.WINDOWING:
            return records.key_by("key").alternatives(
                "either",
                one=lambda s: s.process(Failing, schema=WINDOWS, time="at"),
                two=lambda s: s.filter(col("seq") >= 0).key_by("key").process(Windowing, schema=WINDOWS, time="at"),
                three=lambda s: s.process(Totalling, schema=WINDOWS, time="at"),
                prefer=["one", "two", "three"],
                convert={
                    **dict.fromkeys([("one", "three"), ("two", "three")], Totalling.of_windowing),
                    **dict.fromkeys([("three", "one"), ("three", "two")], Totalling.to_windowing),
                },
            )
        case Shape.BUFFERING:
            return records.key_by("key").alternatives(
                "either",
                one=lambda s: s.process(Buffering, schema=SCHEMA),
                two=lambda s: s.process(Buffering, schema=SCHEMA).filter(col("seq") >= 0),
                three=lambda s: s.filter(col("seq") >= 0).key_by("key").process(Buffering, schema=SCHEMA),
            )
        case Shape.KEYED:
            return _plain(records.key_by("key"))
        case _:
            return _plain(records)


def _plain(records: Stream) -> Stream:
    return records.alternatives(
        "either",
        one=lambda s: s.filter(col("seq") >= 0),
        two=lambda s: s.map(_same, schema=SCHEMA),
        three=lambda s: s.filter(col("seq") >= 0).map(_same, schema=SCHEMA).filter(col("key_seq") >= 0),
    ).filter(col("seq") >= 0)


def _calling(records: Stream) -> Stream:
    def call(stream: Stream) -> Stream:
        return stream.map_async(
            Service(), schema=SCHEMA, capacity=3, timeout="1s", retry=retry(9, wait="5ms"), name="call"
        )

    return records.alternatives(
        "either",
        one=call,
        two=lambda s: s.map(_same, schema=SCHEMA),
        three=lambda s: call(s.filter(col("seq") >= 0)).filter(col("key_seq") >= 0),
    )


def _windowed(records: Stream) -> Stream:
    window = Tumbling(WINDOW_US, "at")
    both = {"n": agg.count(), "total": agg.sum("seq")}
    return records.key_by("key").alternatives(
        "either",
        one=lambda s: s.window(window).aggregate(**both),
        two=lambda s: s.window(window).aggregate(low=agg.min("seq"), **both).select(*_KEPT_WINDOW),
        three=lambda s: s.window(window).aggregate(**both, high=agg.max("seq")).select(*_KEPT_WINDOW),
    )
