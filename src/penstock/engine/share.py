"""A worker's share of a job: unit instances, the channels between them and other workers, epochs, recovery. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.engine.chain import ClockNs
from penstock.engine.channels import Channels, PeerFrames
from penstock.engine.delivering import deliveries
from penstock.engine.edges import EdgeOutput
from penstock.engine.figures import edge_figures
from penstock.engine.guard import Guard
from penstock.engine.inputs.rhythm import Rhythm
from penstock.engine.inspect import WorkerView
from penstock.engine.samples import calibrate
from penstock.engine.snapshot import (
    InstanceId,
    Persist,
    UnitSnapshot,
    decode_snapshot,
    encode_snapshot,
    renumbered,
)
from penstock.engine.state.moving import Moves
from penstock.engine.unit import Unit
from penstock.engine.ways.desk import Desk
from penstock.engine.ways.pool import SlotFrames, SlotPool
from penstock.engine.wiring import Wiring
from penstock.metrics.message import StatsMessage
from penstock.metrics.times import sooner
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.pulses import UnitPulse

STEP_US_MAX = 5_000
"""No unit begins another block when a step has taken so long: messages and heartbeats must not wait."""
ANNOUNCE_US = 50_000
LOOK_US = 10_000
"""How often a worker looks whether much is kept for replay."""

Snapshots = Mapping[InstanceId, Sequence[bytes]]
"""Stored snapshots by instance, in order: as many as its state needs."""


class Share:
    """Hosts unit instances, the channels between them and other workers, and the worker side of epochs and recovery."""

    def __init__(self, plan: Plan, worker: int, incarnation: int, clock_ns: ClockNs) -> None:
        self.worker, self.incarnation = worker, incarnation
        self.stopping = False
        self._plan, self._clock_ns = plan, clock_ns
        self._to_driver: list[m.FromWorker] = []
        self._to_store: list[Persist] = []
        self._storing: set[str] = set()
        self._stored: list[m.Stored] = []
        self._channels = Channels(plan, incarnation)
        self._wiring = Wiring(plan, worker, self._channels)
        self._outputs = self._wiring.outputs
        self._units: dict[InstanceId, Unit] = {}
        self._rhythm = Rhythm(plan.options.linger_us, worker, plan.workers)
        self._built: dict[InstanceId, int] = {}
        """In which generation each was built."""
        self._pool = SlotPool(worker, incarnation)
        self.desk = Desk()
        self._held: frozenset[InstanceId] = frozenset()
        """Instances of the whole job that are being recovered: they, and what is sent to them, wait for Resume."""
        self._recovering = False
        """Until Resume: the driver hears of no epoch and of no end before, though nothing may be held here."""
        self._epoch_pending: int | None = None
        self._epoch_wanted = 0
        self._committed = 0
        self._finished = False
        self.moves = Moves(self, plan, clock_ns)
        self._announce_at_us: int | None = None
        self._look_us = 0
        self._is_stirred = True
        """Something has happened since the last step that an epoch, a switch or the end may have waited for."""
        self.is_calm = False
        """Nothing was under way in other processes when `wake_us` was last asked."""
        self.worked = False
        """Whether there was work since this was last looked at."""

    # --- construction and recovery ------------------------------------------------------------------------------------

    def start(self, message: m.Start, snapshots: Snapshots, guard: Guard | None = None) -> None:
        """Build everything this worker hosts, from nothing or from snapshots; in a recovery, wait for Resume with it.

        With a guard the records are handled in careful mode until the next commit.
        """
        everything = [(unit.id, i) for unit in self._plan.units for i in range(unit.instances)]
        restore = message.restore or m.Restore(epoch=0, instances=everything, snapshots=[], renumber=False)
        self._channels.peers = {peer.worker: peer.incarnation for peer in message.peers}
        self._channels.generation = message.generation
        mine = [(unit.id, instance) for unit, instance in self._plan.instances(self.worker)]
        # A new worker has lost all it hosts, whatever else is in the recovery.
        self._rebuild(frozenset(restore.instances) | frozenset(mine), restore.epoch, snapshots, restore.renumber)
        for unit in self.units:
            unit.chain.guard = guard
        if message.generation:
            self._held = frozenset(restore.instances)
            self._recovering = True
            self._tell_restored(restore)

    def roll_back(self, message: m.Rollback, snapshots: Snapshots) -> None:
        """Build what a recovery concerns anew; the rest goes on."""
        self._channels.peers = {peer.worker: peer.incarnation for peer in message.peers}
        self._channels.generation = message.generation
        self._held = frozenset(message.restore.instances)
        self._recovering = True
        self._finished = False
        self._epoch_pending = None
        held_us = self.moves.held_us()
        since_us = self._clock_ns() // 1000 - held_us
        self.moves.call_off(message.restore.epoch)
        self._rebuild(self._held, message.restore.epoch, snapshots, message.restore.renumber)
        self._tell_restored(message.restore, self._clock_ns() // 1000 - since_us if held_us else 0)

    def _tell_restored(self, restore: m.Restore, held_us: int = 0) -> None:
        before, generation = self.figures() if restore.renumber else None, self._channels.generation
        who = m.RolledBack(worker=self.worker, incarnation=self.incarnation, generation=generation)
        self._to_driver.append(msgspec.structs.replace(who, before=before, held_us=held_us))

    def _rebuild(self, instances: frozenset[InstanceId], epoch: int, snapshots: Snapshots, renumber: bool) -> None:
        """Build the instances among ``instances`` that live here, and every channel that leads into one of them."""
        self._committed = max(self._committed, epoch)
        mine = list(self._plan.instances(self.worker))
        self._part_from({(unit.id, i) for unit, i in mine})
        concerned = [(unit, i) for unit, i in mine if (unit.id, i) in instances]
        states: dict[InstanceId, list[UnitSnapshot]] = {}
        for unit, i in concerned:
            key = (unit.id, i)
            self.forget(key)
            states[key] = [decode_snapshot(packed) for packed in snapshots.get(key, ())]
            if renumber:
                states[key] = [renumbered(each, epoch) for each in states[key]]
            first_id = states[key][-1].next_id if states[key] else 0
            for edge in self._plan.outputs(unit.id):
                self._outputs[edge.id, i] = EdgeOutput(edge, self._plan, i, first_id)
        for unit, i in mine:
            self._wiring.connect_outputs(unit, i, instances, epoch)
        for unit, i in concerned:
            self._build(unit, i, states[unit.id, i], instances, epoch, snapshots)
        self.follow_shifts()
        self._units = {(unit.id, i): self._units[unit.id, i] for unit, i in mine if (unit.id, i) in self._units}
        for key, made in self._units.items():
            if key not in instances:
                self._wiring.rewire(made, instances)
        self._stir()

    def _part_from(self, mine: set[InstanceId]) -> None:
        """Forget what has moved to another worker."""
        for key in [key for key in self._units if key not in mine]:
            self.forget(key)
        self._wiring.tidy()

    def forget(self, key: InstanceId) -> None:
        """Close an instance that is built anew, here or elsewhere, with all that was to be told of it."""
        unit = self._units.pop(key, None)
        if unit is not None:
            unit.forget()
            unit.close()
        names = {persist.name for persist in self._to_store if (persist.unit, persist.instance) == key}
        self._to_store = [persist for persist in self._to_store if persist.name not in names]
        self._storing = {name for name in self._storing if not name.startswith(_prefix(*key))}
        self._stored = [stored for stored in self._stored if (stored.unit, stored.instance) != key]

    def follow_shifts(self) -> None:
        """Have every output deal out as the plan's routes say now."""
        for output in self._outputs.values():
            output.follow_shifts()

    def _build(
        self,
        unit: UnitSpec,
        i: int,
        state: list[UnitSnapshot],
        instances: frozenset[InstanceId],
        epoch: int,
        snapshots: Snapshots,
    ) -> None:
        outputs = [self._outputs[edge.id, i] for edge in self._plan.outputs(unit.id)]
        logs = None
        if unit.source is None:
            logs = self._wiring.inputs(unit, i, (state[-1].inputs or None) if state else None, instances)
        self._built[unit.id, i] = self._channels.generation
        ends, key = (logs, outputs, self._clock_ns, self._pool, self.desk), (unit.id, i)
        ahead = self.moves.claim(key, state, epoch, snapshots)
        made = self._units[key] = Unit(unit, i, self._plan, *ends, ahead)
        made.hold(holds=self.moves.holds(key, epoch))
        made.input.join(self._rhythm)
        if state:
            made.restore(state)
            self._deliver(made, epoch)
        elif epoch:
            made.begin_after(epoch)
            self._deliver(made, epoch)

    @property
    def units(self) -> list[Unit]:
        """All unit instances of this worker."""
        return list(self._units.values())

    # --- messages in --------------------------------------------------------------------------------------------------

    def on_driver(self, message: m.ToWorker) -> None:
        """Take a control message other than `Start` and `Rollback`, which bring snapshots."""
        self._stir()
        match message:
            case m.Resume(generation=generation):
                if generation == self._channels.generation:
                    self._held = frozenset()
                    self._recovering = False
                    self._channels.look_again()
            case m.BeginEpoch(epoch=epoch):
                self._epoch_pending = epoch
                for unit in self.units:
                    unit.due_epoch = epoch
                    unit.input.begin_epoch(epoch)
            case m.Commit(epoch=epoch, final=final):
                self._commit(epoch)
                if final:
                    for unit in self.units:
                        unit.chain.finish()
                    self._to_driver.append(m.Stopped(worker=self.worker, incarnation=self.incarnation))
                    self.stopping = True
            case m.Drain(keep=keep):
                for unit in self.units:
                    unit.input.pause() if keep else unit.input.drain()
            case m.Switch():
                for unit in self.units:
                    if unit.spec.id == message.unit:
                        unit.switch(message)
            case m.Exchange():
                for unit in self.units:
                    if unit.spec.id == message.unit:
                        unit.exchanges.want(message)
            case m.Calibrate(unit=unit_id, instance=instance, records=records):
                found = self._units.get((unit_id, instance))
                if found is not None:
                    calibrate(found, self._pool, records)
            case m.Prepare() | m.Depart() | m.Hold() | m.BeginShift() | m.Release():
                self.moves.on_driver(message)
            case m.GroupEnded(group=group):
                self._pool.on_group_ended(group)
            case m.Stop():
                self.stopping = True

    def on_slot(self, message: s.FromSlot, payloads: Sequence[bytes]) -> None:
        """Take a word, or a result, of a slot."""
        self._stir()
        self._pool.receive(message, payloads)

    def _stir(self) -> None:
        """Have the next step look at everything."""
        self._is_stirred = True
        for unit in self._units.values():
            unit.bell.rung = True

    def on_peer(self, frames: Sequence[bytes], now_us: int) -> None:
        """Take what another worker has sent."""
        self._channels.receive(frames, now_us)

    @property
    def refused_messages(self) -> int:
        """Messages of replaced workers and past generations."""
        return self._channels.refused_messages

    # --- work ---------------------------------------------------------------------------------------------------------

    def step(self, now_us: int) -> bool:
        """Do a bounded piece of what can be done now; say whether some of it may be left.

        Units are in the order of the plan, sources first: what a source reads passes all units of this worker in one
        step. `wake_us` tells when there is more to do that nobody brings.
        """
        self.moves.turn(now_us)
        worked, left = self._pool.give_back_lost(), False
        held, news = self._held, self._is_stirred
        until_ns = now_us * 1000 + STEP_US_MAX * 1000
        for key, unit in self._units.items():
            if not unit.has_work(now_us) or (held and key in held):
                continue
            unit.bell.rung = False
            for _ in range(unit.input.turns):
                if not unit.step(now_us):
                    break
                worked = True
                if unit.input.is_empty:
                    break
                if self._clock_ns() > until_ns:
                    left = unit.bell.rung = True
                    break
            else:
                # A source says by its wake time when more is due.
                unit.bell.rung = unit.bell.rung or unit.spec.source is None
            unit.rest(now_us)
            if unit.snapshots or unit.changes.over:
                news = True
        if worked or news:
            self.worked = True
            if self._announce_at_us is None:
                self._announce_at_us = now_us + ANNOUNCE_US
        if news:
            self._is_stirred = False
            self._progress()
        if self._announce_at_us is not None and now_us >= self._announce_at_us:
            self._announce_at_us = None
            for output in self._outputs.values():
                output.announce()
        if now_us >= self._look_us:
            self._look_us = now_us + LOOK_US
            filling = any(each.is_filling for each in self._outputs.values())
            if self._epoch_wanted <= self._committed and (filling or any(u.chain.is_filling for u in self.units)):
                self._epoch_wanted = self._committed + 1
                self._to_driver.append(m.EpochWanted(worker=self.worker, incarnation=self.incarnation))
        # Those downstream may have made room for those who had none.
        for key, unit in self._units.items():
            if unit.bell.rung and key not in held:
                return True
        return left

    def _progress(self) -> None:
        """Have new snapshots stored; report switches, and the epoch and the end once everything up to it is stored."""
        units = self._units.values()
        for unit in units:
            if unit.snapshots:
                self._store(unit)
            for made in unit.changes.take():
                self._to_driver.append(made.message(self.worker, self.incarnation, unit.spec.id, unit.instance))
        if self._storing or self._recovering:
            return
        epoch = self._epoch_pending
        if epoch is not None and all(unit.finished or unit.done_epoch >= epoch for unit in units):
            self._epoch_pending = None
            stored = [each for each in self._stored if each.epoch <= epoch]
            self._to_driver.append(
                m.EpochDone(worker=self.worker, incarnation=self.incarnation, epoch=epoch, stored=stored)
            )
        if not self._finished and all(unit.finished for unit in units):
            self._finished = True
            self._to_driver.append(
                m.Finished(worker=self.worker, incarnation=self.incarnation, stored=list(self._stored))
            )

    def _store(self, unit: Unit) -> None:
        for snapshot in unit.snapshots:
            process = f"{self.incarnation:x}-{self._channels.generation}"
            name = f"{_prefix(unit.spec.id, unit.instance)}{snapshot.epoch:08d}-{process}"
            self._storing.add(name)
            packed = encode_snapshot(snapshot)
            who, uploads = (unit.spec.id, unit.instance), unit.chain.uploads()
            self._to_store.append(Persist(*who, snapshot.epoch, snapshot.depth, name, packed, uploads))
        unit.snapshots.clear()

    def on_stored(self, stored: m.Stored) -> None:
        """A snapshot is on disk; one of an instance that was built anew meanwhile no longer matters."""
        self._is_stirred = True
        if stored.name in self._storing:
            self._storing.discard(stored.name)
            self._stored.append(stored)

    def _commit(self, epoch: int) -> None:
        self._committed = max(self._committed, epoch)
        self._stored = [stored for stored in self._stored if stored.epoch > epoch]
        for unit in self.units:
            unit.chain.guard = None
            unit.commit(epoch)
            self._deliver(unit, epoch)

    def _deliver(self, unit: Unit, epoch: int) -> None:
        """Commit a unit's sinks; hand over what belongs into the driver's process."""
        size_bytes = min(self._plan.options.block_bytes, m.MESSAGE_BYTES_MAX)
        self._to_driver += deliveries(unit, epoch, self.worker, self.incarnation, size_bytes)

    # --- messages out -------------------------------------------------------------------------------------------------

    def tell(self, message: m.FromWorker) -> None:
        """Have a message sent to the driver."""
        self._to_driver.append(message)

    def to_driver(self) -> list[m.FromWorker]:
        """Take the messages for the driver."""
        taken, self._to_driver = self._to_driver, []
        return taken

    def to_store(self) -> list[Persist]:
        """Take the snapshots to be stored."""
        taken, self._to_store = self._to_store, []
        return taken

    def to_peers(self, now_us: int) -> list[PeerFrames]:
        """Return the messages for other workers."""
        return self._channels.sends(now_us, self._held)

    def wake_us(self, now_us: int) -> int | None:
        """When there is something to do without a message, or None."""
        soonest = sooner(self._announce_at_us, self.moves.wake_us())
        held, self.is_calm, read_us = self._held, True, self._rhythm.next_us
        for key, unit in self._units.items():
            if not unit.next_us:
                self.is_calm = False
            wake = None if held and key in held else unit.wake_us(now_us)
            if unit.spec.source is not None and wake is not None and now_us < wake < read_us:
                wake = read_us
            if wake is not None and (soonest is None or wake < soonest):
                soonest = wake
        wake = self._channels.wake_us
        return wake if soonest is None or wake < soonest else soonest

    def to_slots(self, now_us: int) -> list[SlotFrames]:
        """Take the messages for slots."""
        return self._pool.send(now_us)

    # --- figures ------------------------------------------------------------------------------------------------------

    def figures(self) -> list[StatsMessage]:
        """Figures of every operation here."""
        return [
            msgspec.structs.replace(each, built=self._built[key])
            for key, unit in self._units.items()
            for each in unit.figures()
        ]

    def pulse(self, now_us: int, busy_us: int = 0, cpu_us: int = 0) -> m.Pulse:
        """How busy the instances here are, and the process."""
        pulses = [
            UnitPulse(
                unit=unit.spec.id,
                instance=unit.instance,
                arrived=unit.input.arrived_records(now_us),
                waiting=unit.input.waiting_records(now_us),
                blocked_us=unit.blocked.total_us,
                alternatives=unit.exchanges.pulse(now_us),
                replicas=unit.way.figures(now_us),
                busy_us=unit.chain.busy_us,
            )
            for unit in self._units.values()
        ]
        return m.Pulse(
            worker=self.worker,
            incarnation=self.incarnation,
            at_us=now_us,
            units=pulses,
            slots=self._pool.slots,
            replicas=self._pool.replica_numbers,
            busy_us=busy_us,
            cpu_us=cpu_us,
        )

    def edge_figures(self) -> list[m.EdgeFigures]:
        """What every edge has carried, as seen from here."""
        return edge_figures(self._plan, self.units, self._outputs, self._channels.senders)

    def offsets(self) -> dict[str, dict[int, int]]:
        """Next offset of every partition that is read here, by source."""
        found: dict[str, dict[int, int]] = {}
        for unit in self._units.values():
            if unit.spec.source is not None:
                found.setdefault(unit.spec.name, {}).update(unit.input.offsets())
        return found

    def inspect(self) -> WorkerView:
        """A read-only view of everything here."""
        units = self._units.values()
        return WorkerView(self._channels, self._pool, units, self._epoch_pending, self._storing, self._held)

    def close(self) -> None:
        """Free sinks and sources."""
        for unit in self.units:
            unit.close()


def _prefix(unit: int, instance: int) -> str:
    return f"u{unit}-i{instance}-e"
