"""Operations that take their time: one that is worth changing form for, and one that holds those before it up."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.operators.stateless.functions import Function
from penstock.testing.simulation.oracle import SCHEMA
from penstock.testing.simulation.world import World
from penstock.types import Schema

RECORD_NS = 1_000_000
BATCH_NS = 1_000_000
LIGHT_NS = 500_000
DRAG_NS = 10_000_000
ELASTIC_NS = 8_000_000


def labour(world: World, record_ns: int, *, pure: bool) -> Function:
    """Far more work for each record than for a batch; it is charged to whichever process is at it."""

    def work(record: Any) -> Any:
        world.labour_ns += record_ns
        return record

    def work_on_all(batch: pa.RecordBatch) -> pa.RecordBatch:
        world.labour_ns += BATCH_NS
        return batch

    made = Function(work, Schema.parse(SCHEMA), pure=pure)
    made.batch(work_on_all)
    return made


def drag(world: World) -> Function:
    """Much work for each record, in either form."""

    def work(record: Any) -> Any:
        world.labour_ns += DRAG_NS
        return record

    return Function(work, Schema.parse(SCHEMA))
