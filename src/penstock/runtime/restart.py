"""What a checkpoint directory has to go on from: judged before Spark starts, made complete before the workers do.

A worker publishes what its own sinks had prepared at the last commit. What no worker would publish, because the
pipeline has changed around a sink, is published here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import msgspec

from penstock.connectors.base import Sink, WriterContext
from penstock.control.resume import Output, carried, check_name, dealt_anew, match, moved, moved_shifts, take_up_sources
from penstock.control.scheduler import Resumption
from penstock.engine.snapshot import UnitSnapshot, decode_snapshot, encode_snapshot
from penstock.engine.state.dealing import dealt
from penstock.errors import PenstockError, SinkFailed
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.runtime.checkpoints import CheckpointStore, CommitRecord
from penstock.types import Schema


class Restart:
    """The last commit of another run, and what this run's plan makes of it.

    Raises
    ------
    CheckpointMismatch
        When the pipeline does not fit; the difference is named.
    """

    def __init__(self, store: CheckpointStore, last: CommitRecord, plan: Plan) -> None:
        self._store = store
        self._last = last
        self._plan = plan
        place = plan.options.checkpoint
        check_name(last.job, plan.options.name, place)
        self._units = match(last.anchors, plan, place)
        self._carried = carried(last.outputs, self._units, plan)

    @property
    def epoch(self) -> int:
        """The epoch that it ends with."""
        return self._last.epoch

    def go_on_from(self, last: CommitRecord) -> None:
        """Take a later commit of the same run instead."""
        self._last = last

    def resumption(self) -> Resumption:
        """Publish what no worker would, and return what the scheduler goes on from; the sinks must be claimed."""
        last, snapshots = self._last, list(self._last.snapshots)
        for output, sink in self._carried:
            for instance in range(output.instances):
                chain = [
                    at for at, each in enumerate(snapshots) if (each.unit, each.instance) == (output.unit, instance)
                ]
                newest = max(chain, key=lambda at: snapshots[at].epoch, default=None)
                held = None
                if newest is not None:
                    held, snapshots[newest] = self._taken_out(snapshots[newest], output.name)
                self._publish(output, sink, instance, held)
        kept = moved(snapshots, self._units)
        anew = dealt_anew(last.anchors, self._units, self._plan)
        for unit in anew:
            kept = [each for each in kept if each.unit != unit] + self._dealt(unit, kept)
        take_up_sources(self._plan, self._of_sources(kept))
        routes = moved_shifts(last.routes, self._units, anew)
        return Resumption(last.epoch, last.start_us, last.generation, kept, last.alternatives, routes)

    def _dealt(self, unit: int, snapshots: list[m.Stored]) -> list[m.Stored]:
        """Deal what the instances of a unit had out to those that there are now; doing it again changes nothing."""
        chains: dict[int, list[UnitSnapshot]] = {}
        for each in sorted((each for each in snapshots if each.unit == unit), key=lambda each: each.epoch):
            chains.setdefault(each.instance, []).append(decode_snapshot(self._store.read_snapshot(each)))
        found = []
        for instance, snapshot in enumerate(dealt(self._plan.units[unit], list(chains.values()))):
            packed = encode_snapshot(snapshot)
            name = f"u{unit}-i{instance}-e{snapshot.epoch:08d}-dealt-{len(chains)}-{self._plan.units[unit].instances}"
            crc = self._store.write_snapshot(name, packed)
            found.append(m.Stored(unit=unit, instance=instance, epoch=snapshot.epoch, depth=0, name=name, crc=crc))
        return found

    def _of_sources(self, snapshots: list[m.Stored]) -> Iterator[tuple[int, UnitSnapshot]]:
        """The newest snapshots of the units that read sources."""
        newest: dict[tuple[int, int], m.Stored] = {}
        for each in snapshots:
            if self._plan.units[each.unit].source is not None:
                found = newest.get((each.unit, each.instance))
                newest[each.unit, each.instance] = each if found is None or each.epoch > found.epoch else found
        for (unit, _), stored in newest.items():
            yield unit, decode_snapshot(self._store.read_snapshot(stored))

    def _taken_out(self, stored: m.Stored, sink: str) -> tuple[bytes | None, m.Stored]:
        """Take what a sink had prepared out of a snapshot: the sink that comes in its place must not find it."""
        snapshot = decode_snapshot(self._store.read_snapshot(stored))
        if sink not in snapshot.sinks:
            return None, stored
        held = snapshot.sinks[sink]
        rest = {name: data for name, data in snapshot.sinks.items() if name != sink}
        packed = encode_snapshot(msgspec.structs.replace(snapshot, sinks=rest))
        name = f"{stored.name}-resumed"
        return held, msgspec.structs.replace(stored, name=name, crc=self._store.write_snapshot(name, packed))

    def _publish(self, output: Output, sink: Sink, instance: int, held: bytes | None) -> None:
        """Make visible what an instance of a sink had prepared; doing it again after a crash changes nothing."""
        epoch, schema = self._last.epoch, Schema.parse(output.schema)
        last, instances = self._last, output.instances
        context = WriterContext(last.job, output.name, instance, instances, last.job_id, is_resumable=True)
        try:
            with closing(sink.writer(schema, context)) as writer:
                writer.restore(epoch, held)
                for each in range(epoch - 2, epoch + 1):  # as a worker does: each under its own name
                    rows = writer.commit(each)
                    if rows:
                        sink.deliver_epoch(each, rows, schema)
                writer.finish()
        except PenstockError as error:
            raise error.at(output.name) from None
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise SinkFailed(sink=output.kind, cause=cause, operation=output.name) from error
