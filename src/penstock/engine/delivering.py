"""What a worker does with a unit's sinks when an epoch is committed; `Share` calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataset.sizes import cut_rows
from penstock.protocol import messages as m

if TYPE_CHECKING:
    from penstock.engine.unit import Unit


def deliveries(unit: Unit, epoch: int, worker: int, incarnation: int, size_bytes: int) -> list[m.FromWorker]:
    """Commit a unit's sinks up to ``epoch``; return what belongs into the driver's process, by when it was prepared."""
    made: list[m.FromWorker] = []
    prepared = min(epoch, unit.done_epoch)
    who = {"worker": worker, "incarnation": incarnation, "instance": unit.instance}
    for sink in unit.chain.sinks:
        # A marker, and the end after it, may come before the word that the epoch before them is committed. Each
        # epoch goes under its own name: what was delivered before a crash is recognised by it.
        for each in range(prepared - 2, prepared + 1):
            rows = sink.commit(each)
            # The parts depend on nothing but the rows, which a restored sink has again.
            for part, (_, packed) in enumerate(cut_rows(rows, size_bytes) if rows else ()):
                m.check_size(packed, sink.name)
                made.append(m.Deliver(**who, sink=sink.name, epoch=each, part=part, rows=packed))
        if sink.writer.is_followed:
            made.append(m.Delivered(**who, sink=sink.name, epoch=epoch))
    return made
