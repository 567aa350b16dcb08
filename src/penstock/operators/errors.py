"""What happens to a record that an operation cannot handle: fail, skip, retry or dead letter; always counted."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.checks import OneOf
from penstock.errors import OperationFailed, PenstockError
from penstock.redaction import redacted
from penstock.types import Record, Schema, nested_dict

ATTEMPTS_MAX = 3
RECORD_TEXT_MAX = 2_000
DEAD_LETTERS = "dead_letters"
DEAD_LETTER_SCHEMA = Schema.parse(
    "operation string, error string, traceback string, record string, "
    "source string, partition bigint, offset bigint, file string, line bigint"
)
"""The last five say which record of which source it was made of. Where records of several blocks were mixed before,
only ``source`` is there, and names all sources that it may be from.

File and line are those of sources that read files; the offset is then the byte at which the line begins."""


class ErrorPolicy(Enum):
    """What an operation does with a record it raises on."""

    FAIL = "fail"
    SKIP = "skip"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"

    @staticmethod
    def parse(value: str | ErrorPolicy, operation: str) -> ErrorPolicy:
        """Read the public option."""
        return OneOf(ErrorPolicy).read("on_error", value, operation=operation)


@dataclass(slots=True)
class ErrorCounts:
    """How many records took which way out."""

    skipped: int = 0
    retried: int = 0
    dead_letters: int = 0

    def add(self, other: ErrorCounts) -> None:
        """Count what another call met as well."""
        self.skipped += other.skipped
        self.retried += other.retried
        self.dead_letters += other.dead_letters


class Failure(NamedTuple):
    """A record that an operation could not handle, and its place among those that the operation was given."""

    at: int
    record: Record


@dataclass(slots=True)
class Passing:
    """Errors by which an alternative fails, and not a record: while ``on`` they are raised, whatever the policy is."""

    kinds: tuple[type[BaseException], ...]
    on: bool = True

    def takes(self, error: BaseException) -> bool:
        """Whether the error is one of these, now."""
        return self.on and isinstance(error, self.kinds)


@dataclass(frozen=True, slots=True)
class Errors:
    """What one operation does with the records that it raises on; keeps nothing."""

    operation: str
    policy: ErrorPolicy = ErrorPolicy.FAIL
    can_choose: bool = True
    """Whether users can give it another policy; sinks have none."""
    passing: Passing | None = None

    @property
    def advice(self) -> str:
        """What to do about a record that has failed the job."""
        if not self.can_choose:
            return ""
        if self.policy is ErrorPolicy.RETRY:
            return 'Every retry failed. To go on past such records give the operation on_error="skip" or "dead_letter".'
        return 'To go on past such records give the operation on_error="skip", "retry" or "dead_letter".'

    def begin(self) -> Failures:
        """Begin to handle the bad records of one call; the generated loops do when the first record raises."""
        return Failures(self)


class Failures:
    """The records that one call of an operation could not handle, and what became of them.

    Attributes
    ----------
    counts : ErrorCounts
        How many records took which way out.
    letters : list of Record
        The dead letters, without the places that they came from.
    dead : list of Failure
        What each dead letter was made of.
    """

    __slots__ = ("_attempts", "_errors", "_retrying", "counts", "dead", "letters")

    def __init__(self, errors: Errors) -> None:
        self.counts = ErrorCounts()
        self.letters: list[Record] = []
        self.dead: list[Failure] = []
        self._errors = errors
        self._retrying: Record | None = None
        self._attempts = 0

    def handle(self, record: Record, error: Exception, index: int) -> bool:
        """Apply the policy to the record at ``index`` of those given; True means: try this record once more.

        Raises
        ------
        OperationFailed
            When the policy is to fail, or when every retry has failed.
        """
        operation, policy, passing = self._errors.operation, self._errors.policy, self._errors.passing
        if passing is not None and policy is not ErrorPolicy.RETRY and passing.takes(error):
            policy = ErrorPolicy.FAIL
        if policy is ErrorPolicy.SKIP:
            self.counts.skipped += 1
            return False
        if policy is ErrorPolicy.DEAD_LETTER:
            self.counts.dead_letters += 1
            self.letters.append(
                DEAD_LETTER_SCHEMA.record_type(
                    operation,
                    describe_error(error),
                    user_traceback(error),
                    record_text(record),
                    *[None] * 5,
                )
            )
            self.dead.append(Failure(index, record))
            return False
        if policy is ErrorPolicy.RETRY and self._tries_again(record):
            self.counts.retried += 1
            return True
        failed = OperationFailed(
            operation=operation,
            cause=describe_error(error),
            record=record_text(record),
            user_traceback=user_traceback(error),
            hint=self._errors.advice,
        )
        failed.at_index, failed.on_record = index, record
        raise failed from error

    def _tries_again(self, record: Record) -> bool:
        if record is not self._retrying:
            self._retrying, self._attempts = record, 0
        self._attempts += 1
        return self._attempts <= ATTEMPTS_MAX

    def add(self, other: Failures, by: int) -> None:
        """Take the failures of a later call in as well, whose records begin at ``by``."""
        self.counts.add(other.counts)
        self.letters += other.letters
        self.dead += [Failure(each.at + by, each.record) for each in other.dead]


def placed(
    letter: Record,
    source: str,
    partition: int | None = None,
    offset: int | None = None,
    file: str | None = None,
    line: int | None = None,
) -> Record:
    """A dead letter that says which record of a source it was made of, or of which sources it may be."""
    return replace(letter, source=source, partition=partition, offset=offset, file=file, line=line)


def describe_error(error: BaseException) -> str:
    """One line on what was raised, without credentials: a client may quote its address."""
    if isinstance(error, PenstockError):
        return redacted(f"[{error.code}] {error.what}".rstrip("."))
    return redacted(f"{type(error).__name__}: {error}")


def user_traceback(error: BaseException) -> str:
    """The traceback from the user's own code on; empty when the error is Penstock's word on a record."""
    if isinstance(error, PenstockError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith("<penstock ") and "/penstock/operators/" not in f.filename]
    if not own:
        return ""
    lines = redacted("".join(traceback.format_list(own)))
    return f"Traceback (most recent call last):\n{lines}{describe_error(error)}"


def record_text(record: Record) -> str:
    """A record as JSON for people to read; text in binary columns is shown as text."""
    readable = {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in nested_dict(record).items()
    }
    return msgspec.json.encode(readable).decode("utf-8", "replace")[:RECORD_TEXT_MAX]
