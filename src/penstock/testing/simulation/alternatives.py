"""Pipelines of the simulation that have alternatives: all of them give the same results, whichever computes."""

from __future__ import annotations

from typing import Any

from penstock.expr import col
from penstock.operators import Tumbling
from penstock.operators.keyed import aggregates as agg
from penstock.pipeline.streams.stream import Stream
from penstock.testing.simulation.oracle import SCHEMA, WINDOW_US, Shape

NAMES = ("one", "two", "three")
SHAPES = (Shape.STATELESS, Shape.KEYED, Shape.RUNNING, Shape.WINDOW, Shape.DEEP)
_KEPT = ("key", "n", "total")
_KEPT_WINDOW = ("key", "window_start", "window_end", "n", "total")
_PAIRS = [("one", "three"), ("two", "three"), ("three", "one"), ("three", "two")]


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


def _windowed(records: Stream) -> Stream:
    window = Tumbling(WINDOW_US, "at")
    both = {"n": agg.count(), "total": agg.sum("seq")}
    return records.key_by("key").alternatives(
        "either",
        one=lambda s: s.window(window).aggregate(**both),
        two=lambda s: s.window(window).aggregate(low=agg.min("seq"), **both).select(*_KEPT_WINDOW),
        three=lambda s: s.window(window).aggregate(**both, high=agg.max("seq")).select(*_KEPT_WINDOW),
    )
