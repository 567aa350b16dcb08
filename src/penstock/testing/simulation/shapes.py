"""The pipelines of the simulation, by their shape."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.connectors import records as records_of
from penstock.connectors.base import Sink, Source
from penstock.connectors.memory import At
from penstock.expr import col
from penstock.operators import Tumbling
from penstock.operators.keyed import aggregates as agg
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.streams.stream import Stream
from penstock.testing.simulation.functions import buffered, called, following, windowed
from penstock.testing.simulation.oracle import SCHEMA, WINDOW_US, Row, Shape
from penstock.testing.simulation.world import START_US


def scripted(partitions: Sequence[Sequence[Row]]) -> Source:
    """A source of records, each of which is due at the time that it has."""
    scripts: list[list[object]] = []
    for partition in partitions:
        script: list[object] = []
        due_us = 0
        for row in partition:
            if row[4] - START_US > due_us:
                due_us = row[4] - START_US
                script.append(At(due_us / 1e6))
            script.append(row)
        scripts.append(script)
    return records_of(schema=SCHEMA, partitions=scripts)


def made(shape: Shape, records: Stream, out: Sink, late: Sink, counts: Sink) -> Pipeline:
    """The pipeline of a shape."""
    count, total = agg.count(), agg.sum("seq")
    window = Tumbling(WINDOW_US, "at")
    match shape:
        case Shape.WINDOWING:
            return windowed(records, out)
        case Shape.BUFFERING:
            return buffered(records, out)
        case Shape.FOLLOWING:
            return following(records, out)
        case Shape.CALLED | Shape.CALLED_BY_KEY:
            return called(records, out, ordered=shape is Shape.CALLED)
        case Shape.STATELESS:
            return records.filter(col("seq") >= 0).to(out, name="out")
        case Shape.KEYED:
            return records.key_by("key").filter(col("seq") >= 0).to(out, name="out")
        case Shape.RUNNING:
            return records.key_by("key").aggregate(n=count, total=total).to(out, name="out")
        case Shape.WINDOW:
            return records.key_by("key").window(window).aggregate(n=count, total=total).to(out, name="out")
        case Shape.LATE:
            mixed = records.key_by("seq").filter(col("seq") >= 0)
            closed = mixed.key_by("key").window(window).aggregate(n=count, total=total)
            return closed.to(out, name="out") + closed.late.to(late, name="late")
        case Shape.SPLIT:
            branches = records.split(some=col("key") < "k2")
            some = branches["some"].filter(col("seq") >= 0)
            return some.merge(branches["rest"].filter(col("key_seq") >= 0)).to(out, name="out")
        case Shape.FANOUT:
            kept = records.filter(col("seq") >= 0)
            return kept.to(out, name="out") + kept.key_by("key").aggregate(n=count, total=total).to(
                counts, name="counts"
            )
        case Shape.DEEP:
            mixed = records.key_by("seq").filter(col("seq") >= 0)
            closed = mixed.key_by("key").window(window).aggregate(n=count, total=total)
            again = closed.key_by("key").aggregate(n=agg.sum("n"), total=agg.sum("total"))
            return again.to(out, name="out")
