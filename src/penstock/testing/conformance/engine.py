"""What the engine does with a sink, step by step: a suite decides where processes are lost.

The order of calls is that of `engine/share.py` and `runtime/restart.py`: check or resume, reserve, claim, writers, then
for each epoch write, prepare, snapshot, uploads, the commit record, commit. A writer that takes the place of a lost one
is told the last recorded epoch with what was in its snapshot, and commits that epoch again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.testing.conformance.report import sent
from penstock.types import Record, Schema

JOB = "conformance"
OPERATION = "out"


class Run:
    """One run of a job that writes to a sink, in one or more instances.

    Parameters
    ----------
    resumed : Run, optional
        The run that it goes on from.
    epoch : int, optional
        The epoch that it goes on from, where that is not the last one.
    """

    def __init__(
        self,
        make: Callable[[], Sink],
        schema: Schema,
        job_id: str,
        *,
        instances: int = 1,
        resumed: Run | None = None,
        epoch: int | None = None,
    ) -> None:
        self.sink = make()
        self.schema = schema
        self.job_id = job_id
        self.instances = instances
        self.recorded = 0
        """Last epoch with a commit record."""
        self.snapshots: dict[tuple[int, int], bytes | None] = {}
        self._told: set[tuple[int, int]] = set()
        """Instances and epochs that were delivered."""
        self._come = [0] * instances
        """How far each instance has come."""
        if resumed is None:
            self.sink.ports([schema], None)
        else:
            self.recorded = resumed.recorded if epoch is None else epoch
            self.snapshots, self._told = dict(resumed.snapshots), resumed._told
            told = {"epoch": self.recorded, "job_id": job_id, "operation": OPERATION, "kind": self.sink.kind}
            self.sink.ports([schema], {**resumed.sink.state(), **told})
        self.sink.reserve(is_local=True)
        self.sink.claim()
        self.writers = [self._open(instance) for instance in range(instances)]

    def _open(self, instance: int) -> SinkWriter:
        context = WriterContext(JOB, OPERATION, instance, self.instances, self.job_id, is_resumable=True)
        writer = sent(self.sink).writer(self.schema, context)
        if self.recorded:
            writer.restore(self.recorded, self.snapshots.get((instance, self.recorded)))
            self._deliver(writer, instance, self.recorded)
        return writer

    def write(self, rows: Sequence[Record], instance: int = 0, form: str = "record") -> None:
        """Hand records to a writer, in one of the ways that the engine does."""
        writer = self.writers[instance]
        match form:
            case "record":
                writer.write(list(rows))
            case "batch":
                writer.write_batch(self.schema.to_batch(list(rows)), self.schema)
            case _:
                stage = sent(self.sink).stager(self.schema, OPERATION)
                writer.adopt(stage(self.schema.to_batch(list(rows))), self.schema)

    def prepare(self, epoch: int) -> None:
        """Let the marker pass: everything is durable, and nobody has recorded it yet."""
        for instance, writer in enumerate(self.writers):
            writer.prepare(epoch)
            self.snapshots[instance, epoch] = writer.snapshot(epoch)
            for upload in writer.uploads():
                upload()

    def record(self, epoch: int) -> None:
        """Write the commit record, when the driver's part of the one before is done: from here on the epoch counts."""
        self.sink.settle(self.recorded)
        self.recorded = epoch

    def commit(self, epoch: int, instance: int | None = None) -> None:
        """Tell the writers, or one of them."""
        for each in range(self.instances) if instance is None else [instance]:
            self._deliver(self.writers[each], each, epoch)

    def _deliver(self, writer: SinkWriter, instance: int, epoch: int) -> None:
        for each in range(max(1, epoch - 2), epoch + 1):
            rows = writer.commit(each)
            if rows and (instance, each) not in self._told:
                self._told.add((instance, each))
                self.sink.deliver_epoch(each, rows, self.schema)
        self._come[instance] = epoch
        if writer.is_followed and min(self._come) == epoch:
            self.sink.reached(epoch, self.schema)

    def epoch(self, epoch: int, rows: Sequence[Record] = ()) -> None:
        """Go through a whole epoch."""
        if rows:
            self.write(rows)
        self.prepare(epoch)
        self.record(epoch)
        self.commit(epoch)

    def replace(self, instance: int = 0) -> SinkWriter:
        """Lose a writer's process; return what is left of it, should it only have been slow."""
        orphan = self.writers[instance]
        self.writers[instance] = self._open(instance)
        return orphan

    def end(self) -> None:
        """End in peace."""
        for writer in self.writers:
            writer.finish()
            writer.close()
        self.sink.finish()
        self.sink.release()

    def die(self) -> None:
        """End without a word: the system gives back what the process held."""
        for writer in self.writers:
            writer.close()
        self.sink.release()
