"""Samples of what comes to a unit, for slots that measure both forms of its operations on them."""

from __future__ import annotations

from penstock.dataset import pack
from penstock.engine.unit import Unit
from penstock.engine.ways.pool import SlotPool
from penstock.protocol import slots as s

TAP_RECORDS = 512
"""Records of a sample that has to be kept for it."""


def calibrate(unit: Unit, pool: SlotPool, records: int) -> None:
    """Send a sample of what comes to the unit to a slot; where it cannot be read again, keep some of it first."""
    last = unit.last_plain
    if last < 0 or unit.chain.stateful is not None:
        return
    do = s.Do(0, *pool.owner, 0, 0, unit.spec.id, unit.instance, 0, last, 0, 0, records, 0, True)
    if unit.spec.movable.start < 0:
        partition, offset = next(iter(unit.input.offsets().items()))
        if offset:
            do.first, do.partition = -1, partition
            do.offset, do.count = max(0, offset - records), min(records, offset)
            pool.sample(do, None)
        return
    sample = unit.tapped()
    if sample is None:
        unit.tap(min(records, TAP_RECORDS))
    else:
        do.count = len(sample)
        pool.sample(do, pack(unit.spec.schema.to_batch(sample)))
