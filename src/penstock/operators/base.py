"""What an operation is: a configuration that is checked on the driver and builds its two forms on a worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pyarrow as pa

from penstock.operators.errors import DEAD_LETTERS, Errors, Failures
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from penstock.operators.alternatives import Alternatives
    from penstock.operators.keyed.state import KeyedState

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
    ONLY = "only"
    """There is no record form: what has arrived is a batch."""


class Result(msgspec.Struct, gc=False):
    """What came of one call of the record form: everything, and nothing of it is kept elsewhere.

    Attributes
    ----------
    rows : list of Record
        What leaves through the main port.
    sides : dict or None
        Records for the other ports that have any, dead letters among them. None: there are none, and nothing failed or
        was late, so that there is nothing to look at beside the rows.
    failures : Failures or None
        Records that the operation could not handle; None if there are none.
    late : int
        How many of the records came after their window had closed.
    """

    rows: list[Record]
    sides: dict[str, list[Record]] | None = None
    failures: Failures | None = None
    late: int = 0


class BatchResult(msgspec.Struct):
    """What came of one call of the batch form; like a `Result` with columns in place of rows."""

    columns: pa.RecordBatch
    sides: dict[str, list[Record]] | None = None
    failures: Failures | None = None
    fallbacks: int = 0
    """How many batches the vectorised form could not handle and the loop did."""


RecordForm = Callable[[list[Record]], Result]
BatchForm = Callable[[pa.RecordBatch], BatchResult]


def result_of(rows: list[Record], sides: dict[str, list[Record]] | None, failures: Failures, late: int = 0) -> Result:
    """The result of a call in which some records failed: their dead letters go through a port of their own."""
    letters = {DEAD_LETTERS: failures.letters} if failures.letters else {}
    return Result(rows, {**(sides or {}), **letters}, failures, late)


@dataclass(frozen=True)
class Lateness:
    """When a record is late: when the event time less ``delay_us`` has reached the end of its first window.

    Attributes
    ----------
    size_us, slide_us : int
        The windows; a size of 0 means the moment right after the record itself.
    """

    size_us: int = 0
    slide_us: int = 1
    delay_us: int = 0

    def late_at(self, time_us: Any) -> Any:
        """The least event time at which a record of this time, or each of an array of them, is late."""
        if not self.size_us:
            return time_us + (1 + self.delay_us)
        before = time_us - self.size_us
        return before - before % self.slide_us + (self.slide_us + self.size_us + self.delay_us)


class Operator:
    """One operation at work: both forms over one input schema.

    Attributes
    ----------
    process : callable
        The record form: takes the records that have arrived, in order, and returns what came of them.
    waited_ns : callable or None
        Takes how long it has waited for others since it was last asked, however many the records were.
    """

    waited_ns: Callable[[], int] | None = None

    def __init__(
        self,
        process: RecordForm,
        *,
        schema: Schema,
        output: Schema,
        vectorised: BatchForm | None = None,
    ) -> None:
        self.process = process
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
            done.failures,
            fallbacks=int(self._vectorised is not None),
        )


class StatefulOperator(Operator):
    """An operation that owns keyed state and follows the watermark; always in record form.

    It keeps whatever is by key in ``state`` and names in the spaces' ``changed`` what it changes there: see
    `operators/keyed/state.py`. The engine writes it, a little at a time, and reads it back. What is not by key is in
    the `header`, which is written at each marker. What follows from both, such as heaps and indexes, is made again when
    they have been read back.

    Attributes
    ----------
    state : KeyedState
        Everything that is by key.
    rows_max : int or None
        About how many results `advance` gives at once, where the operation can give them in parts; None: all of them.
    straggler_us : int or None
        The watermark of the source partition that the next records come from, where some of them are behind it: they
        are judged by it, however far the other partitions are. None: all of them are ahead of it.
    follows_clock : bool
        Whether it looks at ``now_us``, the clock when the next records were taken, and waits for times of the clock.
    """

    state: KeyedState
    rows_max: int | None = None
    straggler_us: int | None = None
    follows_clock: bool = False
    now_us: int = 0

    @abstractmethod
    def advance(self, watermark_us: int) -> Result:
        """Take note that every input has reached ``watermark_us``; return what that completes.

        Where that is much, it may return a part of it; `go_on` is asked for the others as long as `behind_us` is set.
        The state holds what has not been returned, so that a marker may come between two parts.
        """

    @property
    def behind_us(self) -> int | None:
        """The watermark that was reached, if it has completed more than has been returned."""
        return None

    def go_on(self) -> Result:
        """Return the next part of what the watermark has completed."""
        raise NotImplementedError(f"{type(self).__name__} returns everything at once")

    @abstractmethod
    def finish(self) -> Result:
        """The input has ended: return what is still open."""

    @property
    def wake_us(self) -> int | None:
        """The time of the clock for which `fire` waits, if it does."""
        return None

    def fire(self, now_us: int) -> Result:
        """The clock has reached a time that was waited for; return what comes of it."""
        raise NotImplementedError(f"{type(self).__name__} does not look at the clock: {now_us}")

    def close(self) -> None:
        """The instance ends, or is built anew."""

    @abstractmethod
    def header(self) -> Any:
        """What is not by key, now: a few plain values."""

    @abstractmethod
    def restored(self, headers: Sequence[Any]) -> None:
        """The ``state`` has been read back: take the headers that were written with it, and make what follows from it.

        There is one header, or one for each of several instances whose key groups have come together here.
        """

    wants_whole: bool = False
    """Whether the ``state`` is another one than that of the last snapshot: the next one must hold all of it."""

    def prepare(self, headers: Sequence[Any]) -> None:
        """State will be read back that was written with these headers; before ``state`` is asked for."""

    hears_loading: bool = False
    """Whether it makes what follows from its state as that is loaded, beside other work: then `on_loaded` hears of each
    entry, and `caught_up` takes the place of `restored`."""

    def prepare_next(self, header: Any) -> None:
        """More of the state will be loaded, which was written before this header."""

    def on_loaded(self, name: Any, each: Any, value: Any, before: Any) -> None:
        """An entry of a space has come in the place of another one; None where there is none."""

    def caught_up(self, headers: Sequence[Any]) -> None:
        """All of the state has come: take the headers that were written with it, as `restored` does."""

    def take_over(self, other: StatefulOperator) -> bool:
        """Take the state of another operation whose state is of the same type; say whether it is the very same."""
        self.state.restore([other.state.whole()])
        self.restored([other.header()])
        return False

    def begin(self, *, undoable: bool) -> None:
        """What comes next may have to be undone, or need not be."""

    def undo(self) -> bool:
        """Undo everything since `begin`, which an error of a user's function has ended; say whether that can be."""
        return False

    def take_converted(self, other: StatefulOperator, convert: Callable[[Any, Any], Any]) -> None:
        """Take the state of another operation, of each key what a function makes of it."""
        raise NotImplementedError(f"{type(self).__name__} takes no state of {type(other).__name__} by {convert}")


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


class Step:
    """What a plan asks of every step of a chain, be it an operation or a sink."""

    stateful: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    """Whether it waits for others, so that many records are under way in it; it is in a unit of its own then."""
    is_pure: bool = False
    """Whether running it once more has no effect."""
    is_whole: ClassVar[bool] = False
    """Whether a micro-batch is never run in pieces: a call costs about the same for few records and for many."""
    is_replicable: bool = False
    """Whether replicas can run it."""
    can_shift: ClassVar[bool] = True
    """Whether some of its key groups can go to another instance, where records come by key."""

    @property
    def choice(self) -> Alternatives | None:
        """The alternatives of which it runs the active one; None: there is one way to compute it."""
        return None

    @property
    def passes_max(self) -> int | None:
        """How many records it lets pass, all of its instances together; None: any number."""
        return None

    @property
    def declared_time(self) -> tuple[str, int] | None:
        """The time column that it declares, and how far the watermark trails it; nothing runs for a declaration."""
        return None

    def takes_state_of(self, signature: str) -> bool:
        """Whether it can go on with the state of an operation of another signature."""
        del signature
        return False

    def describe(self) -> str:
        """The arguments in a few words, for `penstock explain`."""
        return ""


class Operation(Step, ABC):
    """Configuration of one step of a pipeline; immutable, checked before Spark starts, sent through Spark.

    An operation is built and run as it is, or it is one that users see and `expand` says what runs.
    """

    kind: ClassVar[str]
    batch_kind: BatchKind = BatchKind.VECTORISED
    follows_clock: ClassVar[bool] = False
    """Whether its state looks at the clock."""

    @property
    def at_once(self) -> int:
        """How many calls may be under way at once, where it waits for others."""
        return 1

    is_pure: bool = True
    """Whether running it once more has no effect: false where it calls a function of the user's, unless declared so."""

    @property
    def is_replicable(self) -> bool:  # type: ignore[override]
        return not self.stateful and not self.is_whole

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

    def column_of(self, column: str, schema: Schema) -> str | None:
        """The input column that an output column is, unchanged; None: the operation makes it."""
        del column, schema
        return None

    @property
    def readers_of_time(self) -> tuple[tuple[str, Lateness], ...]:
        """For each input the column whose event time the operation follows, and when a record is late for it."""
        return ()

    @property
    def delays_us(self) -> dict[str, int]:
        """How far the time columns of its results may be behind the watermark that it follows."""
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

    def takes_state_of(self, signature: str) -> bool:
        return signature == self.state_signature

    @property
    def remembers_us(self) -> int | None:
        """How long a record matters to the state, in event time; None: for as long as the job runs."""
        return None if self.stateful else 0
