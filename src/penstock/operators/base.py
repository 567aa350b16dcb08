"""What an operation is: a configuration that is checked on the driver and builds its two forms on a worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import msgspec
import pyarrow as pa

from penstock.operators.errors import DEAD_LETTERS, Errors, Failures
from penstock.types import Record, Schema

MAIN = "out"
"""The port every operation's ordinary output leaves through."""


class Form(Enum):
    """How an operation is run."""

    RECORD = "record"
    BATCH = "batch"


class BatchKind(Enum):
    """What the batch form of an operation is made of, as `penstock explain` shows it."""

    VECTORISED = "vectorised"
    LOOP = "loop"
    NONE = "none"


class Result(msgspec.Struct, gc=False):
    """What came of one call of the record form: everything, and nothing of it is kept elsewhere.

    Attributes
    ----------
    rows : list of Record
        What leaves through the main port.
    sides : dict or None
        Records for the other ports that have any, dead letters among them; None if there are none and nothing failed.
    event_time_us_max : int or None
        Largest event time met, by an operation before a window's shuffle.
    failures : Failures or None
        Records that the operation could not handle; None if there are none.
    """

    rows: list[Record]
    sides: dict[str, list[Record]] | None = None
    event_time_us_max: int | None = None
    failures: Failures | None = None


class BatchResult(msgspec.Struct):
    """What came of one call of the batch form; like a `Result` with columns in place of rows."""

    columns: pa.RecordBatch
    sides: dict[str, list[Record]] | None = None
    event_time_us_max: int | None = None
    failures: Failures | None = None
    fallbacks: int = 0
    """How many batches the vectorised form could not handle and the loop did."""


RecordForm = Callable[[list[Record]], Result]
BatchForm = Callable[[pa.RecordBatch], BatchResult]


def result_of(
    rows: list[Record], sides: dict[str, list[Record]] | None, event_time_us_max: int | None, failures: Failures
) -> Result:
    """The result of a call in which some records failed: their dead letters go through a port of their own."""
    letters = {DEAD_LETTERS: failures.letters} if failures.letters else {}
    return Result(rows, {**(sides or {}), **letters}, event_time_us_max, failures)


class Operator:
    """One operation at work: both forms over one input schema.

    Attributes
    ----------
    process : callable
        The record form: takes the records that have arrived, in order, and returns what came of them.
    tells_event_time : bool
        Whether results have the largest event time met: the operation is the one before a window's shuffle.
    late_records : int
        Records that came after their window had closed.
    """

    def __init__(
        self,
        process: RecordForm,
        *,
        schema: Schema,
        output: Schema,
        vectorised: BatchForm | None = None,
        tells_event_time: bool = False,
    ) -> None:
        self.process = process
        self.tells_event_time = tells_event_time
        self.late_records = 0
        self._schema = schema
        self._output = output
        self._vectorised = vectorised

    def process_batch(self, batch: pa.RecordBatch) -> BatchResult:
        """The batch form: equal to the record form on every input.

        A batch on which the vectorised form fails is gone through record by record, so that the bad
        record is found and treated exactly as in record form.
        """
        if self._vectorised is not None:
            try:
                return self._vectorised(batch)
            except Exception:
                pass  # Not lost: the loop below meets the same problem at its record, or proves that there is none.
        done = self.process(self._schema.to_rows(batch))
        return BatchResult(
            self._output.to_batch(done.rows),
            done.sides,
            done.event_time_us_max,
            done.failures,
            fallbacks=int(self._vectorised is not None),
        )


class StatefulOperator(Operator):
    """An operation that owns keyed state and follows event time; always in record form."""

    @abstractmethod
    def advance(self, event_time_us: int) -> list[Record]:
        """Take note that every input has shown records up to ``event_time_us``; return what that completes."""

    @abstractmethod
    def finish(self) -> list[Record]:
        """The input has ended: return what is still open."""

    @abstractmethod
    def snapshot(self, full: bool) -> bytes:
        """Return the whole state, or what has changed since the last snapshot."""

    @abstractmethod
    def restore(self, snapshots: Sequence[bytes]) -> None:
        """Take the state of a whole snapshot and the changes that follow it."""


@dataclass(frozen=True)
class Expansion:
    """An operation in parts: stateless ones before a shuffle, one for each input, and the one behind it.

    Attributes
    ----------
    before : tuple of (str, Operation)
        What each input goes through, with a word for it; all give records of one schema.
    behind : Operation
        What owns the state.
    keys : tuple of str
        Key columns between the parts; without any, all records go to one instance.
    user_keys : tuple of str
        The same columns as users name them.
    """

    before: tuple[tuple[str, Operation], ...]
    behind: Operation
    keys: tuple[str, ...]
    user_keys: tuple[str, ...]


class Operation(ABC):
    """Configuration of one step of a pipeline; immutable, checked before Spark starts, sent through Spark.

    An operation is built and run as it is, or it is one that users see and `expand` says what runs.
    """

    kind: ClassVar[str]
    batch_kind: BatchKind = BatchKind.VECTORISED
    stateful: ClassVar[bool] = False

    @abstractmethod
    def bind(self, schema: Schema, /) -> Schema:
        """Check the operation against its input and return its output schema; joins take several inputs."""

    def build(self, schema: Schema, errors: Errors) -> Operator:
        """Make the operator on a worker."""
        raise NotImplementedError(f"{self.kind} runs in parts: build what expand() gives")

    def expand(self, schemas: Sequence[Schema], read: Collection[str]) -> Expansion | None:
        """The parts that run in place of the operation, whose ports in ``read`` have readers; None: it runs itself."""
        del schemas, read
        return None

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        """Ports beside the main one, with their schemas."""
        del schema
        return {}

    def ports(self, schemas: Sequence[Schema], resumed: dict[str, object] | None) -> dict[str, Schema]:
        """Check the operation against its inputs and return the schema of every port."""
        del resumed
        return {MAIN: self.bind(*schemas), **self.side_ports(schemas[0])}

    @property
    def required_ports(self) -> tuple[str, ...]:
        """Ports that something has to read, or the pipeline is refused."""
        return (MAIN,)

    @property
    def state_signature(self) -> str | None:
        """What the state of a checkpoint must fit; None without state."""
        return None

    def describe(self) -> str:
        """The arguments in a few words, for `penstock explain`."""
        return ""
