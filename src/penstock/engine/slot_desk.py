"""A worker's dealings with slots: results in, samples out, hand-overs told, and how busy its units are. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataset import pack
from penstock.engine.detour import Result
from penstock.engine.input_unit import InputUnit
from penstock.engine.pool import SlotPool
from penstock.engine.source_unit import SourceUnit
from penstock.errors import rebuilt
from penstock.protocol import messages as m
from penstock.protocol import slots as s

ATTEMPTS_MAX = 3
"""Slots that may be lost with a micro-batch before the worker runs it itself."""
TAP_RECORDS = 512
"""Records of a sample that has to be kept for it."""

Units = Sequence[SourceUnit | InputUnit]


class SlotDesk:
    """Where a worker's units and the slots meet."""

    def __init__(self, worker: int, incarnation: int) -> None:
        self.pool = SlotPool(worker, incarnation)
        self._worker = worker
        self._incarnation = incarnation

    def take_back(self, units: Units) -> bool:
        """Have units run what slots were lost with too often; say whether there was any."""
        found = self.pool.exhausted(ATTEMPTS_MAX)
        for work in found:
            any(unit.detour is not None and unit.detour.on_exhausted(work) for unit in units)
        return bool(found)

    def on_slot(self, message: s.FromSlot, payloads: Sequence[bytes], units: Units) -> None:
        """Take a word, or a result, of a slot."""
        match message:
            case s.Ready():
                self.pool.on_ready(message)
            case s.Leave(incarnation=incarnation, ended=ended):
                self.pool.on_leave(incarnation, ended)
            case s.Done(incarnation=incarnation, item=item, attempt=attempt):
                if self.pool.take(incarnation, item, attempt) is not None:
                    for unit in units:
                        if unit.detour is not None and unit.detour.on_result(item, Result(message, payloads)):
                            break
            case s.NotDone(incarnation=incarnation, item=item, attempt=attempt):
                if self.pool.take(incarnation, item, attempt) is not None:
                    raise rebuilt(message.code, message.what, message.operation, message.hint, message.user_traceback)

    def calibrate(self, unit: SourceUnit | InputUnit, records: int) -> None:
        """Send a sample of what comes to the unit to a slot; where it cannot be read again, keep some of it first."""
        last = unit.last_plain
        if last < 0 or unit.chain.stateful is not None:
            return
        do = s.Do(
            slot=0,
            worker=self._worker,
            incarnation=self._incarnation,
            item=0,
            attempt=0,
            unit=unit.spec.id,
            instance=unit.instance,
            first=0,
            last=last,
            partition=0,
            offset=0,
            count=records,
            due_us=0,
            sample=True,
        )
        if isinstance(unit, SourceUnit) and unit.spec.movable.start < 0:
            partition, offset = next(iter(unit.offsets.items()))
            if offset:
                do.first, do.partition = -1, partition
                do.offset, do.count = max(0, offset - records), min(records, offset)
                self.pool.sample(do, None)
            return
        sample = unit.tapped()
        if sample is None:
            unit.tap(min(records, TAP_RECORDS))
        else:
            do.count = len(sample)
            self.pool.sample(do, pack(unit.spec.schema.to_batch(sample)))

    def hand_overs(self, units: Units) -> list[m.FromWorker]:
        """Take the word on hand-overs that are complete."""
        told: list[m.FromWorker] = []
        for unit in units:
            for each in unit.take_hand_overs():
                told.append(
                    m.Rerouted(
                        worker=self._worker,
                        incarnation=self._incarnation,
                        switch=each.switch,
                        unit=unit.spec.id,
                        instance=unit.instance,
                        pause_us=each.pause_us or 0,
                        carried_records=each.carried_records,
                    )
                )
        return told

    def pulse(self, units: Units, now_us: int) -> m.Pulse:
        """How busy the instances are."""
        pulses = [
            m.UnitPulse(
                unit=unit.spec.id,
                instance=unit.instance,
                arrived=unit.arrived_records(now_us),
                waiting=unit.waiting_records(now_us),
            )
            for unit in units
        ]
        return m.Pulse(
            worker=self._worker, incarnation=self._incarnation, at_us=now_us, units=pulses, slots=self.pool.slots
        )
