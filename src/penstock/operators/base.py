"""What an operation is: a configuration that is checked on the driver and builds its two forms on a worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import pyarrow as pa

from penstock.operators.errors import Errors
from penstock.types import Record, Schema

RecordForm = Callable[[list[Record]], list[Record]]
BatchForm = Callable[[pa.RecordBatch], pa.RecordBatch]

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


@dataclass(slots=True)
class EventTime:
    """Largest event time that an operator met in its last block."""

    us_max: int | None = None


class Operator:
    """One operation at work: both forms over one input schema.

    Attributes
    ----------
    process : callable
        The record form: takes the records that have arrived, in order, and returns what comes out.
    ports : dict
        Records for side outputs by port, filled while processing; the unit empties it after each block.
    event_time : EventTime or None
        Event time of the last block, for the operation before a window's shuffle.
    late_records : int
        Records that came after their window had closed.
    batch_fallbacks : int
        Batches that the vectorised form could not handle and the loop did.
    """

    def __init__(
        self,
        process: RecordForm,
        *,
        schema: Schema,
        output: Schema,
        vectorised: BatchForm | None = None,
        ports: dict[str, list[Record]] | None = None,
        event_time: EventTime | None = None,
    ) -> None:
        self.process = process
        self.ports = ports if ports is not None else {}
        self.event_time = event_time
        self.late_records = 0
        self.batch_fallbacks = 0
        self._schema = schema
        self._output = output
        self._vectorised = vectorised

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch form: equal to the record form on every input.

        A batch on which the vectorised form fails is gone through record by record, so that the bad
        record is found and treated exactly as in record form.
        """
        if self._vectorised is not None:
            try:
                return self._vectorised(batch)
            except Exception:
                # Not lost: the loop below meets the same problem at its record, or proves that there is none.
                self.batch_fallbacks += 1
                for rows in self.ports.values():
                    rows.clear()
        return self._output.to_batch(self.process(self._schema.to_rows(batch)))


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


class Operation(ABC):
    """Configuration of one step of a pipeline; immutable, checked before Spark starts, sent through Spark."""

    kind: ClassVar[str]
    batch_kind: BatchKind = BatchKind.VECTORISED
    stateful: ClassVar[bool] = False

    @abstractmethod
    def bind(self, schema: Schema) -> Schema:
        """Check the operation against its input and return its output schema."""

    @abstractmethod
    def build(self, schema: Schema, errors: Errors) -> Operator:
        """Make the operator on a worker."""

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        """Ports beside the main one, with their schemas."""
        del schema
        return {}

    def describe(self) -> str:
        """The arguments in a few words, for `penstock explain`."""
        return ""
