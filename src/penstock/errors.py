"""Every error a user can meet: a class with a code, the operation's name, what happened and what to do next."""

from __future__ import annotations

import difflib
import os
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from penstock.redaction import redacted

_FOREIGN = (f"{Path(__file__).parent}{os.sep}", f"{os.sep}IPython{os.sep}")
"""What is in the paths of code that is not the user's."""


class PenstockError(Exception):
    """Base of all errors raised by Penstock.

    Attributes
    ----------
    code : str
        Stable identifier of the kind of error.
    operation : str or None
        Name of the pipeline operation concerned.
    what : str
        What happened.
    hint : str
        What to do next; may be empty.
    """

    code: ClassVar[str] = "PENSTOCK"

    def __init__(self, what: str, *, operation: str | None = None, hint: str = "") -> None:
        self.what = what
        self.operation = operation
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        where = f" operation '{self.operation}':" if self.operation else ""
        hint = f" {self.hint}" if self.hint else ""
        return redacted(f"[{self.code}]{where} {self.what}{hint}")

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses have keyword-only constructors; rebuild from the state so that errors can cross processes.
        return (_rebuild, (type(self), self.__dict__.copy()))

    def at(self, operation: str) -> PenstockError:
        """Name the operation if it is not known yet, and return the same error, to be raised from where users call."""
        if self.operation is None:
            self.operation = operation
        return self.with_traceback(None)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the error in one line, and the user's own code below."""
        frames = traceback.extract_tb(self.__traceback__)
        own = [frame for frame in frames if not any(place in frame.filename for place in _FOREIGN)]
        return [f"{type(self).__name__}: {self}", *(each.rstrip() for each in traceback.format_list(own))]


def _rebuild(kind: type[PenstockError], state: dict[str, object]) -> PenstockError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = (state.get("what", ""),)
    return error


@contextmanager
def naming(operation: str) -> Iterator[None]:
    """Name the operation in an error that does not know it."""
    try:
        yield
    except PenstockError as error:
        raise error.at(operation) from None


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the allowed word closest to ``word``, or an empty string."""
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


class UnknownColumn(PenstockError):
    """A column is named that the operation's input does not have."""

    code = "UNKNOWN_COLUMN"

    def __init__(self, *, column: str, available: Iterable[str], operation: str | None = None) -> None:
        names = list(available)
        text = " For an expression use select_expr(…) or ps.expr(…)." if set(column) & set("+*/()=<>") else ""
        super().__init__(
            f"there is no column '{column}'.",
            operation=operation,
            hint=f"Columns here: {', '.join(names) or '(none)'}.{text or nearest(column, names)}",
        )
        self.column = column


class TypeMismatch(PenstockError):
    """A value or expression has a type that does not fit where it is used."""

    code = "TYPE_MISMATCH"

    def __init__(self, *, what: str, operation: str | None = None, hint: str = "") -> None:
        super().__init__(what, operation=operation, hint=hint)


class SchemaError(PenstockError):
    """A schema text cannot be read."""

    code = "INVALID_SCHEMA"

    def __init__(self, *, ddl: str, problem: str, hint: str = "", operation: str | None = None) -> None:
        super().__init__(f"schema {ddl!r}: {problem}.", operation=operation, hint=hint)


class InvalidText(PenstockError):
    """A SQL text cannot be read."""

    code = "INVALID_TEXT"

    def __init__(
        self, *, text: str, problem: str, line: int | None = None, column: int | None = None, hint: str = ""
    ) -> None:
        where = "" if line is None or column is None else f" (line {line}, column {column})"
        super().__init__(f"{problem}{where}, in {text!r}.", hint=hint)


class InvalidOption(PenstockError):
    """An option has a value outside of what is allowed."""

    code = "INVALID_OPTION"

    def __init__(
        self, *, option: str, given: object, allowed: str, operation: str | None = None, hint: str = ""
    ) -> None:
        what = f"option {option}={given!r} is not allowed."
        super().__init__(what, operation=operation, hint=f"Allowed: {allowed}.{hint}")
        self.option = option


class InvalidGraph(PenstockError):
    """The pipeline's graph cannot run: a cycle, an unconnected part, two operations of one name …"""

    code = "INVALID_GRAPH"


class InterfaceMismatch(PenstockError):
    """A source, sink or table of another package is written for a version of the interface that is not there."""

    code = "CONNECTOR_INTERFACE"

    def __init__(self, *, kind: str, module: str, wanted: object, oldest: int, newest: int) -> None:
        newer = isinstance(wanted, int) and wanted > newest
        known = f"{newest}" if oldest == newest else f"{oldest} to {newest}"
        super().__init__(
            f"'{kind}' of {module} is written for version {wanted} of the connectors' interface, and this Penstock has "
            f"{known}.",
            hint="Upgrade penstock, or take an older release of the connector."
            if newer
            else "Upgrade the connector, or take an older release of penstock.",
        )


class NotSerializable(PenstockError):
    """A user's function cannot be sent to the workers."""

    code = "NOT_SERIALIZABLE"

    def __init__(self, *, operation: str, cause: BaseException) -> None:
        super().__init__(
            f"its function cannot be sent to the workers: {cause}.",
            operation=operation,
            hint="Open connections, locks and files inside the function (on first call), not outside of it.",
        )


class SourceMissing(PenstockError):
    """An input file or directory does not exist."""

    code = "SOURCE_MISSING"

    def __init__(self, *, path: str, operation: str | None = None, read: str = "on the workers") -> None:
        super().__init__(f"'{path}' does not exist.", operation=operation, hint=f"Check the path; it is read {read}.")


class SourceUnreadable(PenstockError):
    """An input file is damaged."""

    code = "SOURCE_UNREADABLE"

    def __init__(self, *, path: str, cause: str, operation: str | None = None) -> None:
        super().__init__(f"'{path}' cannot be read: {cause}.", operation=operation, hint="Restore the file.")


class SourceChanged(PenstockError):
    """What was read of an input file is not there any more as it was."""

    code = "SOURCE_CHANGED"

    def __init__(self, *, path: str, problem: str, operation: str | None = None) -> None:
        super().__init__(
            f"'{path}' is not the file that was read before: {problem}.",
            operation=operation,
            hint="Files may grow, be added and be renamed within their directory. Restore this one, or give what has "
            "taken its place another name; or start anew with another checkpoint directory.",
        )


class SourceFailed(PenstockError):
    """A server that records or a table are read from refuses, is not reached, or has lost what was not read yet."""

    code = "SOURCE_FAILED"

    def __init__(self, *, source: str, cause: object, hint: str = "", operation: str | None = None) -> None:
        super().__init__(f"{source}: {cause}.", operation=operation, hint=hint)


class BadRecord(PenstockError):
    """A record cannot be handled by an operation (malformed text, a value out of range …)."""

    code = "BAD_RECORD"


class PoisonRecord(PenstockError):
    """A record has ended its process again and again, and is kept from its operation."""

    code = "POISON_RECORD"

    def __init__(self, *, operation: str, losses: int) -> None:
        super().__init__(f"the process was lost with the record {losses} times.", operation=operation)


class ArithmeticFailed(PenstockError):
    """An expression overflowed or divided by zero."""

    code = "ARITHMETIC"

    def __init__(self, *, what: str) -> None:
        super().__init__(what)


class OperationFailed(PenstockError):
    """An operation raised on a record and its policy is to fail."""

    code = "OPERATION_FAILED"

    def __init__(
        self, *, operation: str | None, cause: str, record: str, user_traceback: str = "", hint: str = ""
    ) -> None:
        super().__init__(f"{cause} on record {record}.", operation=operation, hint=hint)
        self.user_traceback = user_traceback
        self.at_index: int | None = None
        """Which of the records that the operation was given it is about, where it is about one."""
        self.on_record: Any = None

    def place(self, source: str, partition: int, offset: int, file: str | None = None, line: int | None = None) -> None:
        """Name the record of a source that the bad one is, or was made of."""
        where = f"partition {partition}, offset {offset}" if file is None else f"file '{file}', line {line}"
        self.what = f"{self.what.removesuffix('.')} (source '{source}', {where})."

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n{redacted(self.user_traceback.rstrip())}" if self.user_traceback else text


class SinkFailed(PenstockError):
    """A sink could not write or commit."""

    code = "SINK_FAILED"

    def __init__(self, *, sink: str, cause: object, hint: str = "", operation: str | None = None) -> None:
        super().__init__(f"sink {sink}: {cause}.", operation=operation, hint=hint)


class KafkaFailed(PenstockError):
    """A Kafka cannot be reached, refuses what is asked of it, or no longer has what is to be read."""

    code = "KAFKA"


class OffsetGap(PenstockError):
    """A block arrived that does not follow the one before it."""

    code = "OFFSET_GAP"

    def __init__(self, *, log: str, expected: int, got: int) -> None:
        super().__init__(f"log {log}: expected block {expected}, got {got}.")


class LimitExceeded(PenstockError):
    """A named bound was exceeded by a caller that must respect it."""

    code = "LIMIT_EXCEEDED"

    def __init__(self, *, what: str, limit: int, got: int, operation: str | None = None, hint: str = "") -> None:
        super().__init__(f"{what}: {got} exceeds the limit of {limit}.", operation=operation, hint=hint)


class ProtocolError(PenstockError):
    """A message does not fit the protocol's state."""

    code = "PROTOCOL"


class CheckpointDamaged(PenstockError):
    """A file of a checkpoint is missing or not what was written."""

    code = "CHECKPOINT_DAMAGED"

    def __init__(self, *, path: str, cause: str) -> None:
        super().__init__(
            f"'{path}': {cause}.",
            hint="Restore the file from a backup, or start anew with another checkpoint directory.",
        )


class CheckpointMismatch(PenstockError):
    """A checkpoint was written by another pipeline."""

    code = "CHECKPOINT_MISMATCH"


class CheckpointInUse(PenstockError):
    """Another run holds, or has just used, a checkpoint directory."""

    code = "CHECKPOINT_IN_USE"

    def __init__(self, *, place: str, cause: str, hint: str) -> None:
        super().__init__(f"the checkpoint in '{place}' {cause}.", hint=hint)


class CheckpointFenced(PenstockError):
    """A newer run has taken a checkpoint directory over: this one may commit nothing more."""

    code = "CHECKPOINT_FENCED"

    def __init__(self, *, place: str, attempt: int, newer: int) -> None:
        super().__init__(
            f"run {newer} has taken over the checkpoint in '{place}', so this one, run {attempt}, commits no more.",
            hint="Let the newer run go on. What this one had not committed is read again there.",
        )


class CheckpointUnavailable(PenstockError):
    """The store of a checkpoint does not answer, or refuses."""

    code = "CHECKPOINT_UNAVAILABLE"

    def __init__(self, *, place: str, cause: object) -> None:
        super().__init__(
            f"the checkpoint in '{place}' cannot be reached: {cause}.",
            hint="Check the address, the access rights and the network. Started again, the job goes on from there.",
        )


class CheckpointNotShared(PenstockError):
    """A worker does not see the directory for snapshots."""

    code = "CHECKPOINT_NOT_SHARED"

    def __init__(self, *, directory: str, machine: str) -> None:
        super().__init__(
            f"a worker on '{machine}' does not see '{directory}', where the driver keeps snapshots and commits.",
            hint='Give checkpoint= a directory that all machines share, or a URL ("s3://…").',
        )


class PathNotShared(PenstockError):
    """A worker does not see the directory that a relative path begins in."""

    code = "PATH_NOT_SHARED"

    def __init__(self, *, path: str, directory: str, machine: str, operation: str) -> None:
        super().__init__(
            f"its path '{path}' begins in '{directory}', which a worker on '{machine}' does not see.",
            operation=operation,
            hint="Give an absolute path in a directory that all machines share, or a URL.",
        )


class JavaMissing(PenstockError):
    """No usable Java was found for Spark."""

    code = "JAVA"


class SparkFailed(PenstockError):
    """Spark could not start or ended the job."""

    code = "SPARK"


class SessionRefused(PenstockError):
    """A Spark session of the user's cannot host a job."""

    code = "SPARK_SESSION"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(
            f"the job cannot run in the Spark session of this program: {'; '.join(problems)}.",
            hint="Or stop that session before the job starts: Penstock then starts one that fits.",
        )


class WorkerFailed(PenstockError):
    """A worker could not begin or go on."""

    code = "WORKER_FAILED"


class WorkerLost(PenstockError):
    """A worker ended or fell silent while the job ran."""

    code = "WORKER_LOST"


class PortOccupied(PenstockError):
    """An address to listen on is taken."""

    code = "PORT_OCCUPIED"

    def __init__(self, *, address: str) -> None:
        super().__init__(f"'{address}' is in use.", hint="Choose another port.")


class JobNotFound(PenstockError):
    """No running job of that name can be observed."""

    code = "JOB_NOT_FOUND"


class PipelineFileRefused(PenstockError):
    """A file given to the command line cannot be read for its pipelines."""

    code = "PIPELINE_FILE"


def rebuilt(code: str, what: str, operation: str | None, hint: str, user_traceback: str) -> PenstockError:
    """Return the error that another process has met: the same class, code and text."""
    known = {kind.code: kind for kind in PenstockError.__subclasses__()}
    kind = known.get(code, PenstockError)
    error = kind.__new__(kind)
    PenstockError.__init__(error, what, operation=operation, hint=hint)
    if isinstance(error, OperationFailed):
        error.user_traceback = user_traceback
    return error
