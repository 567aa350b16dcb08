"""What a source and a sink are: the engine calls these interfaces, every connector implements them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from penstock.connectors.secrets import redacted
from penstock.errors import CheckpointMismatch, InvalidOption
from penstock.operators.base import MAIN, BatchKind, Step
from penstock.types import Record, Schema

RESUME_ONCE = (
    "Resume once with the sink as it was, unless the last run came to its end; "
    "then give the new sink a name of its own: .to(…, name=…)."
)
"""What to do where a resumed run has another sink under the name of one that may have output to publish."""

Position = int | bytes
"""Whatever a source needs to go on: a number where that is enough, otherwise bytes that only the source can read."""


class Run(msgspec.Struct, array_like=True, frozen=True):
    """Consecutive records of one partition, which any reader of the partition can read again."""

    at: Position
    """Where the first one is."""
    count: int


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one record is, for people: an offset in its partition; or a byte, a file and a line, counted from 1."""

    offset: int
    file: str | None = None
    line: int | None = None


@dataclass(slots=True)
class SourceBatch:
    """Records read at once.

    Attributes
    ----------
    rows : list of Record
        Records of the source's schema, in their order; never empty.
    due_us : int
        When the oldest of them was scheduled or arrived; latency counts from here.
    at : Position
        Where the first of them is: with their number, a `Run`.
    follows : bool
        Whether the first follows the last one of the batch before, so that both are one run.
    """

    rows: list[Record]
    due_us: int
    at: Position
    follows: bool = True

    def __post_init__(self) -> None:
        # What is compiled takes nothing but these types.
        self.rows = self.rows if type(self.rows) is list else list(self.rows)
        self.due_us, self.follows = int(self.due_us), bool(self.follows)


@dataclass(slots=True)
class SourceColumns:
    """Records read at once, as columns.

    Attributes
    ----------
    columns : pyarrow.RecordBatch
        Records of the source's schema, in their order.
    due_us : int
        When the oldest of them was scheduled; 0 for "now" where the source has no schedule: whoever reads knows
        the time and fills it in.
    """

    columns: pa.RecordBatch
    due_us: int


class SourceReader(ABC):
    """Reads one partition of a source.

    What is not abstract here is meant for sources whose position is the number of records read, such as generated
    ones; others have their own.

    Attributes
    ----------
    offset : int
        Records read so far, since the beginning of the partition; reports count them.
    """

    offset: int = 0

    @abstractmethod
    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        """Return at most ``records_max`` records that are due, or None; never block."""

    @abstractmethod
    def wake_us(self, now_us: int) -> int | None:
        """When to poll next: a time (now or before: at once), or None once the partition has ended."""

    def position(self) -> Position:
        """All that is needed to go on after the records that were read or skipped; it is stored with every epoch."""
        return self.offset

    @abstractmethod
    def seek(self, position: Position) -> None:
        """Go on from what `position` was, backwards or forwards, without reading what lies before it."""

    def committed(self, position: Position) -> None:
        """Take note that nobody will go back before ``position``; it may be called after `close`, and not at all."""

    def backlog_records(self, now_us: int) -> int:
        """How many records are due and not read yet, about (0 where the source cannot tell)."""
        del now_us
        return 0

    def due_records(self, now_us: int) -> int | None:
        """How many of the next records are due, if any reader of the partition can read them again.

        None (the default) where that is not known without reading them, or where only `poll` can read. Records beyond
        the partition's end are never counted; an endless source without a schedule names a large number.
        """
        del now_us
        return None

    def skip(self, count: int) -> list[Run]:
        """Move past the next ``count`` records, of those that are due, and name them: somebody else reads them."""
        at, self.offset = self.offset, self.offset + count
        return [Run(at, count)]

    def recent(self, count: int) -> Run | None:
        """Name at most ``count`` records that were read or skipped lately, if there are any: a sample."""
        first = max(0, self.offset - count)
        return Run(first, self.offset - first) if self.offset else None

    def read(self, run: Run) -> SourceColumns:
        """Return the records of a run as columns; the reader's own position does not count, and stays.

        Only where `due_records` is not None.
        """
        del run
        raise NotImplementedError("due_records is None: this source is read by poll only")

    def rows(self, run: Run) -> list[Record]:
        """Return the records of a run in record form; the reader's own position is lost."""
        self.seek(run.at)
        rows: list[Record] = []
        while len(rows) < run.count and (batch := self.poll(1 << 60, run.count - len(rows))) is not None:
            rows += batch.rows
        return rows

    def close(self) -> None:
        """Free what the reader holds."""


class OnceReader(SourceReader):
    """A reader of records that only `poll` gives out, in their order: no other reader can read a run of them again.

    Dead letters name the number of a record in its partition, where no operation has changed it before.
    """

    def recent(self, count: int) -> Run | None:
        del count
        return None

    def rows(self, run: Run) -> list[Record]:
        del run
        return []


def check_count(count: int, left: int | None) -> None:
    """Refuse a ``count`` that `SourceReader.read` cannot give out; ``left`` is what there is up to the end, if any."""
    if count < 1 or (left is not None and count > left):
        raise InvalidOption(option="count", given=count, allowed="from 1" + ("" if left is None else f" to {left}"))


class Source(ABC):
    """A replayable input: configuration only, sent to the workers through Spark."""

    interface: ClassVar[int] = 1
    """The version of the interface that it is written for: `penstock.connectors.INTERFACE` when it was written."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} source: {self.schema.ddl}>"

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Schema of the records."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """One word for explain and errors, such as ``generator``."""

    def ports(self, schemas: Sequence[Schema], resumed: dict[str, object] | None) -> dict[str, Schema]:
        """Check the source and return the schema of its only port; ``resumed`` is None where the job begins anew."""
        del schemas, resumed
        self.check()
        return {MAIN: self.schema}

    @property
    def required_ports(self) -> tuple[str, ...]:
        """Ports that something has to read."""
        return (MAIN,)

    @property
    def is_split(self) -> bool:
        """Whether slots can read any run of a partition themselves: its readers have `due_records` and `read`."""
        return False

    @property
    def is_bounded(self) -> bool:
        """Whether it has all of its records when a job starts, and ends behind them: a backfill reads it through."""
        return False

    def dataframe(self, session: Any) -> Any:
        """All of its records as a DataFrame, where Spark reads them faster than its readers; None: readers do."""
        del session
        return None

    def check(self) -> None:
        """Raise a PenstockError if the source cannot work (missing file …); called before Spark starts."""

    def reserve(self, *, is_local: bool) -> None:
        """Refuse what is taken, such as a lock or a port, before Spark starts; until `release`, and before `claim`.

        ``is_local``: workers will be on this machine, so a port that is taken here is taken for them.
        """
        del is_local

    def claim(self) -> None:
        """Begin what the source needs in the driver's process, before workers read it; until `release`."""

    def release(self) -> None:
        """End that."""

    def signature(self, partitions: int) -> str:
        """What must be the same for a run that goes on from another one's positions."""
        return f"{self.kind} of {partitions} partitions ({self.schema.ddl})"

    def resumed(self, positions: Mapping[int, Position]) -> Source:
        """Return the source for a run that goes on from these positions of its partitions; the driver asks."""
        del positions
        return self

    @property
    def place(self) -> Path | str | None:
        """The path of the files that it reads, on this machine's file systems; None: it reads none."""
        return None

    reads_ahead: ClassVar[bool] = False
    """Whether readers fetch in the background: that none has a record now does not mean that there is none."""

    def up_to(self, where: object) -> Source | None:
        """The source as history: with an end at ``where``, or where it stands now if that is None.

        None (the default) where it cannot have one: it has no history that can be read again, or knows no such place.
        """
        del where
        return None

    def redealt(self, positions: Mapping[int, Position], partitions: int) -> dict[int, Position]:
        """Return what so many partitions go on from, where there were others; for sources whose signature allows it."""
        del partitions
        return dict(positions)

    @abstractmethod
    def partitions(self, parallelism: int) -> int:
        """How many partitions the source has in a job of that parallelism."""

    def spots(self, run: Run, indexes: Sequence[int]) -> list[Spot]:
        """Say where some records of a run are, given by their places in it: what a dead letter names."""
        assert isinstance(run.at, int)
        return [Spot(run.at + index) for index in indexes]

    @abstractmethod
    def reader(self, partition: int, partitions: int, start_us: int) -> SourceReader:
        """Open one partition; ``start_us`` is the time the job started, from which schedules count."""


class End(ABC):
    """A place that can be at either end of a pipeline, such as a table or a topic."""

    @abstractmethod
    def source(self) -> Source:
        """Return what reads it."""

    @abstractmethod
    def sink(self) -> Sink:
        """Return what writes to it."""


Stager = Callable[[pa.RecordBatch], bytes]


@dataclass(slots=True)
class WriterContext:
    """Where a sink's writer runs."""

    job: str
    operation: str
    instance: int
    instances: int
    job_id: str = ""
    """Tells the job from others of its name. A run that goes on from a checkpoint has that of the run before it."""
    is_resumable: bool = False
    """Whether a later run can go on from this one, and publish what it has left."""


class SinkWriter(ABC):
    """Writes the output of one instance. Called in order: write*, prepare(n), commit(n), write*, …"""

    is_followed: ClassVar[bool] = False
    """Whether the driver's `Sink.reached` is to hear how far all instances have come."""

    @abstractmethod
    def write(self, rows: list[Record]) -> None:
        """Take records of the present epoch."""

    def write_batch(self, batch: pa.RecordBatch, schema: Schema) -> None:
        """Take a batch of columns; the default goes through rows."""
        self.write(schema.to_rows(batch))

    def adopt(self, staged: bytes, schema: Schema) -> None:
        """Take a batch that a slot has made ready with the sink's `stager`, in place of `write`."""
        self.write_batch(pa.ipc.read_record_batch(pa.py_buffer(staged), schema.arrow), schema)

    def prepare(self, epoch: int) -> None:
        """Make everything written so far durable, but not visible, under ``epoch``."""

    def uploads(self) -> list[Callable[[], None]]:
        """Take what makes the prepared output durable, if that is slow: a thread does it before the epoch's commit."""
        return []

    @property
    def is_full(self) -> bool:
        """Whether so much was written since the last `prepare` that nothing more should come before the next one."""
        return False

    def commit(self, epoch: int) -> list[Record] | None:
        """Make the prepared output up to ``epoch`` visible (idempotent).

        Records returned are handed to :meth:`Sink.deliver` in the driver process.
        """
        del epoch
        return None

    @property
    def is_blocked(self) -> bool:
        """Whether so much that is committed waits for the place it writes to that it takes no more; asked often."""
        return False

    def snapshot(self, epoch: int) -> bytes | None:
        """Return what was prepared under ``epoch``, if it lives in memory only and would be lost with the process."""
        del epoch
        return None

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        """Go on after ``epoch``, which is committed: drop what was prepared later by a writer that is gone."""

    def finish(self) -> None:
        """Wait until everything that was committed is visible, if `commit` has only begun it; nothing comes after."""

    def close(self) -> None:
        """Free what the writer holds; what was not committed is dropped."""


class Sink(Step, ABC):
    """An output: configuration only. Each documents what it promises across failures."""

    interface: ClassVar[int] = 1
    """The version of the interface that it is written for: `penstock.connectors.INTERFACE` when it was written."""

    batch_kind: ClassVar[BatchKind] = BatchKind.LOOP
    """A sink that has not been tried in batch form is taken to cost there what it costs in record form."""
    is_movable: ClassVar[bool] = True
    """Whether tasks that share the work may make its output ready; else its writer gets every record, in order."""
    required_ports: ClassVar[tuple[str, ...]] = ()
    state_signature: ClassVar[None] = None

    @property
    @abstractmethod
    def kind(self) -> str:
        """One word for explain and errors, such as ``files``."""

    def __repr__(self) -> str:
        return f"<{self.kind} sink{f' at {redacted(self.place)}' if self.place is not None else ''}>"

    @property
    def place(self) -> Path | str | None:
        """The directory or URL that it writes into and no other sink of the job may; None: it shares its place."""
        return None

    def ports(self, schemas: Sequence[Schema], resumed: dict[str, object] | None) -> dict[str, Schema]:
        """Check the sink, or take up the state of the run that is resumed; it has no port."""
        if resumed is None:
            self.check(schemas[0])
        else:
            self.take_up(resumed)
        return {}

    def take_up(self, state: dict[str, object]) -> None:
        """Go on from the state of the run before, unless a sink of another kind has left it."""
        before = state.get("kind", self.kind)
        if before != self.kind:
            raise CheckpointMismatch(
                f"sink '{state['operation']}' was {before}, now {self.kind}, "
                "and what it had prepared at the last commit may not be published yet.",
                hint=RESUME_ONCE,
            )
        self.resume(state)

    def check(self, schema: Schema) -> None:
        """Raise a PenstockError if the sink cannot take this schema or place; called before Spark starts."""

    def reserve(self, *, is_local: bool) -> None:
        """Take a lock or a port in the driver, before Spark starts and changing nothing else; until `release`.

        ``is_local``: workers will be on this machine.
        """
        del is_local

    def claim(self) -> None:
        """Make sure, in the driver, that no other running job writes to the same place; held until `release`.

        It does what `reserve` does, where nobody has called that before.
        """

    def release(self) -> None:
        """Give the place up."""

    def state(self) -> dict[str, object]:
        """What a resumed run must know of this one; plain values."""
        return {}

    def resume(self, state: dict[str, object]) -> None:
        """Take the place of `check` in a run that goes on from a checkpoint.

        Beside what `state` has said, ``state`` names the last ``epoch``, the ``job_id`` and the ``operation``.
        """

    def writes_where(self, state: dict[str, object]) -> bool:
        """Whether this sink writes where one of that state, and of its own kind, has written."""
        del state
        return False

    @abstractmethod
    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        """Open the writer of one instance, on its worker."""

    def stager(self, schema: Schema, operation: str) -> Stager:
        """Return what makes a batch ready for a writer's `adopt`, in any process and as often as needed.

        What costs time and needs no order, such as encoding, belongs there.
        """
        del schema, operation
        return lambda batch: batch.serialize().to_pybytes()

    def delivered(self, schema: Schema) -> Schema:
        """What writers hand to the driver with a commit is of this schema: that of the records, or one of the sink."""
        return schema

    def deliver(self, rows: list[Record], schema: Schema) -> None:
        """Take committed records in the driver process (memory and console sinks)."""

    def deliver_epoch(self, epoch: int, rows: list[Record], schema: Schema) -> None:
        """Take committed records of an epoch, or a part of them; it must not wait."""
        del epoch
        self.deliver(rows, schema)

    def reached(self, epoch: int, schema: Schema) -> None:
        """Hear that everything up to ``epoch`` is delivered or visible, of all instances; it must not wait.

        Only where the writers are followed; after each commit, and again after a crash.
        """

    def settle(self, epoch: int) -> dict[str, object]:
        """Wait until the driver's part of everything up to ``epoch`` is done; the next epoch is recorded after that.

        Returns what is to be added to `state` in the record. It is called in a thread of its own.
        """
        del epoch
        return {}

    def finish(self) -> None:
        """Wait, at the end of a job that has not failed, until the driver's part of all that was delivered is done."""
