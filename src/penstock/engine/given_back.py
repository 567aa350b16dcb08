"""An item that nobody else has computed: its records again, from what was sent out or from the source."""

from __future__ import annotations

from penstock.dataset import unpack
from penstock.engine.chain import ClockNs
from penstock.engine.inputs import Input, Readers
from penstock.engine.line import Item
from penstock.pipeline.plan import UnitSpec
from penstock.types import Record


def rows_again(item: Item, spec: UnitSpec, source: Input, clock_ns: ClockNs) -> list[Record]:
    """The records of an item, as they come to its range."""
    schema = spec.schema_at(item.range.first)
    if item.payload is not None:
        return schema.to_rows(unpack(item.payload, schema))
    assert isinstance(source, Readers)
    assert item.place is not None
    before_ns = clock_ns()
    columns, due_us = source.read_again(item.place)
    item.due_us, after_ns = due_us or item.cut_us, clock_ns()
    source.count_read(item.count, after_ns - before_ns, item.due_us, after_ns // 1000)
    return schema.to_rows(columns)
