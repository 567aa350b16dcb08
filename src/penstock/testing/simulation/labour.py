"""An operation that takes its time: far more for each record than for a batch, so that changing form pays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.operators.stateless.functions import Function
from penstock.testing.simulation.oracle import SCHEMA
from penstock.testing.simulation.world import World
from penstock.types import Schema

RECORD_NS = 1_000_000
BATCH_NS = 1_000_000


def labour(world: World) -> Function:
    """Return the operation; what it takes is charged to whichever process is at it."""

    def work(record: Any) -> Any:
        world.labour_ns += RECORD_NS
        return record

    def work_on_all(batch: pa.RecordBatch) -> pa.RecordBatch:
        world.labour_ns += BATCH_NS
        return batch

    made = Function(work, Schema.parse(SCHEMA))
    made.batch(work_on_all)
    return made
