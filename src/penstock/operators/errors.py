"""What happens to a record that an operation cannot handle: fail, skip, retry or dead letter; always counted."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.checks import OneOf
from penstock.errors import OperationFailed, PenstockError
from penstock.types import Record, Schema, record_dict

ATTEMPTS_MAX = 3
RECORD_TEXT_MAX = 2_000
DEAD_LETTERS = "dead_letters"
DEAD_LETTER_SCHEMA = Schema.parse(
    "operation string, error string, traceback string, record string, source string, partition bigint, offset bigint"
)
"""The last three say which record of which source it was made of; null where records of several were mixed before."""


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


class Failure(NamedTuple):
    """A record that an operation could not handle, and its place among those that the operation was given."""

    at: int
    record: Record


class Errors:
    """The policy of one operation at work; the generated loops call `handle` when a record raises.

    Attributes
    ----------
    dead_letters : list of Record
        Bad records for the dead letters; the unit empties it after each block.
    unplaced : list of Failure
        What the last so many dead letters were made of, until `place` says where that came from.
    fatal : Failure or None
        The record on which the operation failed for good.
    """

    def __init__(self, operation: str, policy: ErrorPolicy = ErrorPolicy.FAIL) -> None:
        self.operation = operation
        self.counts = ErrorCounts()
        self.dead_letters: list[Record] = []
        self.unplaced: list[Failure] = []
        self.fatal: Failure | None = None
        self._policy = policy
        self._retrying: Record | None = None
        self._attempts = 0
        self._rehearsing = False

    @property
    def keeps_letters(self) -> bool:
        """Whether bad records become dead letters."""
        return self._policy is ErrorPolicy.DEAD_LETTER

    def handle(self, record: Record, error: Exception, index: int) -> bool:
        """Apply the policy to the record at ``index`` of those given; True means: try this record once more.

        Raises
        ------
        OperationFailed
            When the policy is to fail, or when every retry has failed.
        """
        policy = self._policy
        if self._rehearsing:
            return policy is ErrorPolicy.RETRY and self._tries_again(record)
        if policy is ErrorPolicy.SKIP:
            self.counts.skipped += 1
            return False
        if policy is ErrorPolicy.DEAD_LETTER:
            self.counts.dead_letters += 1
            self.dead_letters.append(
                DEAD_LETTER_SCHEMA.record_type(
                    self.operation,
                    describe_error(error),
                    user_traceback(error),
                    record_text(record),
                    None,
                    None,
                    None,
                )
            )
            self.unplaced.append(Failure(index, record))
            return False
        if policy is ErrorPolicy.RETRY and self._tries_again(record):
            self.counts.retried += 1
            return True
        self.fatal = Failure(index, record)
        raise OperationFailed(
            operation=self.operation,
            cause=describe_error(error),
            record=record_text(record),
            user_traceback=user_traceback(error),
        ) from error

    def _tries_again(self, record: Record) -> bool:
        if record is not self._retrying:
            self._retrying, self._attempts = record, 0
        self._attempts += 1
        return self._attempts <= ATTEMPTS_MAX

    def place(self, source: str, partition: int, offsets: Sequence[int | None]) -> None:
        """Write into the dead letters without a place where in a source they came from; None: that is not known."""
        first = len(self.dead_letters) - len(self.unplaced)
        for at, offset in enumerate(offsets, start=first):
            if offset is not None:
                letter = self.dead_letters[at]
                self.dead_letters[at] = replace(letter, source=source, partition=partition, offset=offset)
        self.unplaced.clear()

    def forget(self) -> None:
        """Drop the dead letters, once they have been written."""
        self.dead_letters.clear()
        self.unplaced.clear()

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """While it lasts a record that raises is left out, and nothing is counted or kept of it."""
        retrying, self._rehearsing = (self._retrying, self._attempts), True
        try:
            yield
        finally:
            (self._retrying, self._attempts), self._rehearsing = retrying, False


def describe_error(error: BaseException) -> str:
    """One line on what was raised."""
    if isinstance(error, PenstockError):
        return f"[{error.code}] {error.what}".rstrip(".")
    return f"{type(error).__name__}: {error}"


def user_traceback(error: BaseException) -> str:
    """The traceback from the user's own code on; empty when the error is Penstock's word on a record."""
    if isinstance(error, PenstockError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith("<penstock ") and "/penstock/operators/" not in f.filename]
    if not own:
        return ""
    return "Traceback (most recent call last):\n" + "".join(traceback.format_list(own)) + describe_error(error)


def record_text(record: Record) -> str:
    """A record as JSON for people to read; text in binary columns is shown as text."""
    readable = {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in record_dict(record).items()
    }
    return msgspec.json.encode(readable).decode("utf-8", "replace")[:RECORD_TEXT_MAX]
