"""An item that was given back: nobody else has computed it, so the unit runs it itself."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataset import unpack
from penstock.engine.chain import ClockNs
from penstock.engine.event_time import Origin
from penstock.engine.inputs import Input
from penstock.engine.line import Item
from penstock.engine.passed import Passed
from penstock.engine.times import Times
from penstock.pipeline.plan import UnitSpec


def run_again(
    spec: UnitSpec, source: Input, times: Times, item: Item, clock_ns: ClockNs
) -> Sequence[tuple[Passed, Origin]]:
    """Run an item through the chain; should it kill this process too, careful mode will find the record."""
    schema = spec.schema_at(item.range.first)
    if item.rows is not None:
        # Where the records of a later item of one place begin is not known.
        place = None if item.skip else item.place
        return times.run(Passed(item.rows), item.due_us, item.origin, item.range.first, None, place)
    if item.payload is not None:
        columns = unpack(item.payload, schema)
    else:
        assert item.place is not None
        before_ns = clock_ns()
        columns, due_us = source.read_again(item.place)
        item.due_us, after_ns = due_us or item.cut_us, clock_ns()
        source.count_read(item.count, after_ns - before_ns, item.due_us, after_ns // 1000)
    rows = Passed(schema.to_rows(columns))
    return times.run(rows, item.due_us, item.origin, max(item.range.first, 0), None, item.place)
