"""The simulator is worth something only if it finds bugs: each of these, planted into the real code, is found."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any
from zlib import crc32

import msgspec
from planting import Change, Mutation, Nursery, Patch, find

from penstock.connectors.buffered import DeliveringWriter
from penstock.control import resume, scheduler
from penstock.control.deliveries import Deliveries
from penstock.control.events import Command
from penstock.control.recovery import InstanceId, SnapshotChains
from penstock.control.scheduler import Scheduler
from penstock.dataset import Block, Log, Mark, Receiver
from penstock.dataset.channel import Ack, Sender
from penstock.engine import share as share_module
from penstock.engine.chain import Chain
from penstock.engine.channels import Channels
from penstock.engine.edges import EdgeOutput, Span
from penstock.engine.inputs import Logs, Readers
from penstock.engine.share import Share
from penstock.engine.snapshot import Persist, UnitSnapshot, encode_snapshot
from penstock.engine.state import Copier, StateSnapshot
from penstock.engine.unit import Unit
from penstock.engine.wiring import Wiring
from penstock.operators.keyed.state import KeyedState
from penstock.protocol import messages as m
from penstock.testing.simulation import driver as simulated_driver
from penstock.testing.simulation.faults import Action, Fault, Moment
from penstock.testing.simulation.oracle import Shape
from penstock.testing.simulation.scenario import Scenario

SEEDS_MAX = 10_000

nursery = Nursery()
planted, planted_where = nursery.planted, nursery.planted_where
FORWARD = (Shape.STATELESS, Shape.SPLIT)
"""Pipelines whose workers do not talk to each other."""
WORKERS_DIE = (Action.KILL_IT, Action.KILL_OTHER, Action.KILL_TWO)
DRIVER_DIES = (Action.KILL_DRIVER, Action.DRAIN)


def strikes(scenario: Scenario, actions: Container[Action], *moments: Moment) -> bool:
    return any(fault.action in actions and fault.moment in moments for fault in scenario.faults)


# --- channels and logs ------------------------------------------------------------------------------------------------


@planted
def acknowledgements_are_dropped(patch: Patch) -> None:
    patch.setattr(Receiver, "ack", lambda self, now_us: None)


@planted
def a_lost_block_is_never_sent_again(patch: Patch) -> None:
    patch.setattr(Sender, "_go_back", lambda self, now_us: None)


@planted
def duplicates_are_taken(patch: Patch) -> None:
    def accept(self: Receiver, block: Block, now_us: int) -> bool:
        self._received = max(self._received, block.last)
        self._queue.append(block)
        self.queued_records += block.count
        self._ack_since_us = self._ack_since_us or now_us
        return True

    patch.setattr(Receiver, "accept", accept)


@planted
def a_gap_is_jumped_over(patch: Patch) -> None:
    original = Receiver.accept

    def accept(self: Receiver, block: Block, now_us: int) -> bool:
        if block.first > self._received:
            self._received = block.first - 1
        return original(self, block, now_us)

    patch.setattr(Receiver, "accept", accept)


@planted
def what_is_sent_counts_as_consumed(patch: Patch) -> None:
    original = Sender.on_ack
    patch.setattr(Sender, "on_ack", lambda self, ack, now_us: original(self, Ack(self._sent, self._sent), now_us))


@planted
def logs_are_truncated_before_the_commit(patch: Patch) -> None:
    consume = Log.consume

    def consumed(self: Log, reader: str, last: int) -> None:
        consume(self, reader, last)
        known = self._committed_epoch
        self.commit(1 << 40)
        self._committed_epoch = known

    patch.setattr(Log, "consume", consumed)


@planted
def logs_are_not_replayed(patch: Patch) -> None:
    patch.setattr(Log, "seek_after_epoch", lambda self, reader, epoch: self.position(reader))


# --- incarnations and generations -------------------------------------------------------------------------------------


@planted
def workers_listen_to_old_incarnations_and_generations(patch: Patch) -> None:
    patch.setattr(Channels, "_is_current", lambda self, instance, message, generation: True)


def slow_between_workers(scenario: Scenario) -> Scenario | None:
    """Blocks are so long on their way that a recovery is over before they come, behind two shuffles."""
    if scenario.shape is not Shape.DEEP or scenario.options.parallelism < 2:
        return None
    faults = [Fault(Action.KILL_IT, Moment.BEGIN, nth, 0, 0) for nth in (3, 6, 9)]
    weather = replace(scenario.weather, delay_us_max=60_000, driver_delay_us_max=100, loss=0.0, reorders=False)
    return replace(scenario, weather=weather, faults=faults, restart_us_last=200, write_us_max=10)


@nursery.planted_with(slow_between_workers)
def workers_listen_to_old_generations(patch: Patch) -> None:
    def is_current(self: Channels, instance: int, message: m.PeerMessage, generation: int) -> bool:
        return self.peers.get(self._plan.worker_of(instance)) == message.incarnation

    patch.setattr(Channels, "_is_current", is_current)


@planted_where(lambda s: any(fault.action in (Action.RETRY, Action.FREEZE, Action.ISOLATE) for fault in s.faults))
def the_scheduler_listens_to_old_incarnations(patch: Patch) -> None:
    original = Scheduler._on_message

    def on_message(self: Scheduler, message: m.FromWorker, now_us: int) -> list[Command]:
        peer = self.peers.get(message.worker)
        if peer is not None and not isinstance(message, m.Register):
            message = msgspec.structs.replace(message, incarnation=peer.incarnation)
        return original(self, message, now_us)

    patch.setattr(Scheduler, "_on_message", on_message)


def small_blocks_and_queues(scenario: Scenario) -> Scenario | None:
    """Blocks of one record each, and windows that hold few."""
    options = replace(scenario.options, queue_records=16_384, queue_bytes=200, block_bytes=1)
    return replace(scenario, options=options) if scenario.shape not in FORWARD else None


@nursery.planted_with(small_blocks_and_queues)
def pieces_of_a_block_share_its_id(patch: Patch) -> None:
    original = EdgeOutput._write_ahead

    def write_ahead(self: EdgeOutput, i: int, span: Span, *piece: Any) -> None:
        last = span.last
        original(self, i, span, *piece)
        span.last = last

    patch.setattr(EdgeOutput, "_write_ahead", write_ahead)


@nursery.planted_with(small_blocks_and_queues)
def a_sender_does_not_count_bytes(patch: Patch) -> None:
    original = Sender.next

    def following(self: Sender, now_us: int) -> Block | None:
        self._in_flight_bytes = 0
        return original(self, now_us)

    patch.setattr(Sender, "next", following)


@nursery.planted_with(lambda s: replace(s, options=replace(s.options, queue_bytes=1, block_bytes=1)))
def what_is_kept_stops_a_marker(patch: Patch) -> None:
    patch.setattr(Unit, "due_epoch", property(lambda self: 0, lambda self, epoch: None), raising=False)


@planted
def a_recovery_keeps_the_generation(patch: Patch) -> None:
    original = Scheduler._recover

    def recover(self: Scheduler, concerned: set[InstanceId], new: set[int]) -> list[Command]:
        if self.generation:
            self.generation -= 1
        return original(self, concerned, new)

    patch.setattr(Scheduler, "_recover", recover)


# --- snapshots and restoring ------------------------------------------------------------------------------------------


@planted
def an_epoch_is_reported_before_its_snapshots_are_stored(patch: Patch) -> None:
    def store(self: Share, unit: Unit) -> None:
        for snapshot in unit.snapshots:
            spec, instance, epoch = unit.spec.id, unit.instance, snapshot.epoch
            name = f"{share_module._prefix(spec, instance)}{epoch:08d}-{self.incarnation:x}-{self._channels.generation}"
            packed = encode_snapshot(snapshot)
            self._to_store.append(Persist(spec, instance, epoch, snapshot.depth, name, packed))
            self._stored.append(
                m.Stored(unit=spec, instance=instance, epoch=epoch, depth=snapshot.depth, name=name, crc=crc32(packed))
            )
        unit.snapshots.clear()

    patch.setattr(Share, "_store", store)


@planted
def state_is_not_restored(patch: Patch) -> None:
    patch.setattr(KeyedState, "restore", lambda self, *logs, owned=None: None)


def written_in_slices(scenario: Scenario) -> Scenario:
    """The state is never small, and so is written a little at a time."""
    return replace(scenario, options=replace(scenario.options, state_slice=1))


@nursery.planted_with(written_in_slices)
def what_has_changed_is_not_written(patch: Patch) -> None:
    original = KeyedState.flush

    def flush(self: KeyedState, limit: int | None = None) -> bytes:
        for space in self.spaces.values():
            if space.changed:
                space.changed.popitem()
        return original(self, limit)

    patch.setattr(KeyedState, "flush", flush)


@nursery.planted_with(written_in_slices)
def a_walk_leaves_a_key_group_out(patch: Patch) -> None:
    original = KeyedState._all_groups
    patch.setattr(KeyedState, "_all_groups", lambda self: islice(original(self), 1, None))


@nursery.planted_with(written_in_slices)
def what_a_walk_has_not_come_to_is_forgotten(patch: Patch) -> None:
    original = KeyedState.refresh
    patch.setattr(KeyedState, "refresh", lambda self, limit: (*original(self, limit)[:2], True))


def written_in_many_turns(scenario: Scenario) -> Scenario | None:
    """Keys that change often are written more than once between two markers."""
    if scenario.shape is not Shape.RUNNING or not strikes(scenario, WORKERS_DIE, *Moment):
        return None
    return replace(scenario, options=replace(scenario.options, state_slice=1, epoch_us=100_000))


@nursery.planted_with(written_in_many_turns)
def what_was_written_before_comes_after_what_has_changed_since(patch: Patch) -> None:
    original = Copier.capture

    def capture(self: Copier) -> tuple[int, StateSnapshot]:
        depth, snapshot = original(self)
        snapshot.pieces.reverse()
        return depth, snapshot

    patch.setattr(Copier, "capture", capture)


@planted
def an_older_snapshot_is_restored(patch: Patch) -> None:
    original = SnapshotChains.of

    def of(self: SnapshotChains, instances: Iterable[InstanceId]) -> list[m.Stored]:
        kept = original(self, instances)
        newest = {(each.unit, each.instance): each.epoch for each in kept if each.depth}
        return [each for each in kept if newest.get((each.unit, each.instance)) != each.epoch]

    patch.setattr(SnapshotChains, "of", of)


@planted
def positions_of_inputs_are_forgotten(patch: Patch) -> None:
    original = Wiring.inputs
    patch.setattr(Wiring, "inputs", lambda self, unit, i, states, instances: original(self, unit, i, None, instances))


@planted
def sources_begin_anew(patch: Patch) -> None:
    original = Readers.restore

    def restore(self: Readers, snapshots: Sequence[UnitSnapshot]) -> None:
        original(self, snapshots)
        for reader in self.readers.values():
            reader.seek(0)

    patch.setattr(Readers, "restore", restore)


@planted
def an_epoch_is_reported_before_its_output_is_uploaded(patch: Patch) -> None:
    patch.setattr(Chain, "uploads", lambda self: ())


@planted
def sinks_forget_what_they_had_prepared(patch: Patch) -> None:
    patch.setattr(Chain, "restore_sinks", lambda self, epoch, held: None)


@planted_where(lambda s: s.delivered and strikes(s, WORKERS_DIE, Moment.RECORDED, Moment.COMMIT))
def a_snapshot_holds_the_output_of_its_own_epoch_only(patch: Patch) -> None:
    original = DeliveringWriter.snapshot

    def snapshot(self: DeliveringWriter, epoch: int) -> bytes:
        packed = original(self, epoch)
        assert packed is not None
        held = msgspec.msgpack.decode(packed, type=dict[int, Any])
        return msgspec.msgpack.encode({epoch: held.get(epoch, [])})

    patch.setattr(DeliveringWriter, "snapshot", snapshot)


# --- epochs, recovery, the driver -------------------------------------------------------------------------------------


@planted
def a_marker_passes_without_alignment(patch: Patch) -> None:
    original = Logs._over

    def over(self: Logs, index: int, block: Block) -> None:
        original(self, index, block)
        self._mark = block.mark if block.mark is Mark.EPOCH else self._mark

    patch.setattr(Logs, "_over", over)


@planted
def the_commit_is_announced_before_it_is_recorded(patch: Patch) -> None:
    original = Scheduler._record

    def record(self: Scheduler, epoch: int, *, final: bool) -> list[Command]:
        return [*self._all(m.Commit(epoch=epoch, final=False)), *original(self, epoch, final=final)]

    patch.setattr(Scheduler, "_record", record)


@planted
def what_is_downstream_of_a_loss_goes_on(patch: Patch) -> None:
    patch.setattr(scheduler, "downstream", lambda plan, lost: set(lost))


@planted_where(lambda s: strikes(s, WORKERS_DIE, Moment.RECORDING) and s.write_us_max > 100)
def a_recovery_does_not_wait_for_a_commit_that_is_being_recorded(patch: Patch) -> None:
    original = Scheduler._on_register

    def on_register(self: Scheduler, message: m.Register, now_us: int) -> list[Command]:
        self._recording, recording = None, self._recording
        commands = original(self, message, now_us)
        self._recording = recording
        return commands

    patch.setattr(Scheduler, "_on_register", on_register)


@planted
def a_loss_during_a_recovery_forgets_the_first_one(patch: Patch) -> None:
    original = Scheduler._recover_lost

    def recover_lost(self: Scheduler) -> list[Command]:
        self._recovering.clear()
        return original(self)

    patch.setattr(Scheduler, "_recover_lost", recover_lost)


@planted_where(lambda s: len(s.partitions) < s.options.parallelism and s.shape in FORWARD)
def a_recovery_that_concerns_nothing_is_not_waited_for(patch: Patch) -> None:
    original = Share._progress

    def progress(self: Share) -> None:
        self._recovering = bool(self._held)
        original(self)

    patch.setattr(Share, "_progress", progress)


@planted
def deliveries_are_taken_again(patch: Patch) -> None:
    original = Deliveries.take

    def take(self: Deliveries, message: m.Deliver) -> int:
        self._seen.clear()
        return original(self, message)

    patch.setattr(Deliveries, "take", take)


@planted
def a_job_resumes_from_the_wrong_epoch(patch: Patch) -> None:
    original = Scheduler.__init__

    def init(self: Scheduler, plan: Any, now_us: int, resumption: Any = None, *, hasty: bool = False) -> None:
        original(self, plan, now_us, resumption, hasty=hasty)
        if resumption is not None:
            self.committed_epoch = self.begun_epoch = resumption.epoch - 1

    patch.setattr(Scheduler, "__init__", init)


@planted_where(lambda s: s.shape in (Shape.KEYED, Shape.SPLIT) and strikes(s, DRIVER_DIES, Moment.RECORDED))
def a_resumed_job_forgets_sinks_in_units_of_their_own(patch: Patch) -> None:
    original = resume.anchors
    patch.setattr(simulated_driver, "anchors", lambda plan: [each for each in original(plan) if not each.is_sink])


def one_source_is_empty(scenario: Scenario) -> Scenario | None:
    """An instance ends epochs before the driver dies, and a worker dies as soon as the job is resumed."""
    if scenario.delivered or scenario.shape in FORWARD or scenario.options.parallelism < 2:
        return None
    faults = [
        Fault(Action.KILL_DRIVER, Moment.MARKER, 4 * scenario.options.parallelism, 0, 0),
        Fault(Action.KILL_IT, Moment.RESUME, 1, 0, 0),
        Fault(Action.KILL_IT, Moment.RESUME, 4, 0, 0),
    ]
    return replace(scenario, partitions=[[], *scenario.partitions[1:]], faults=faults)


@nursery.planted_with(one_source_is_empty)
def what_had_ended_resumes_in_its_old_epoch(patch: Patch) -> None:
    original = share_module.renumbered
    patch.setattr(share_module, "renumbered", lambda snapshot, epoch: original(snapshot, snapshot.epoch))


@nursery.parameters
def test_some_seed_finds(mutation: Mutation, change: Change, monkeypatch: Patch) -> None:
    find(mutation, change, range(SEEDS_MAX), monkeypatch)
