"""What happens to a record that an operation cannot handle: fail, skip, retry or dead letter; always counted."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import Enum

import msgspec

from penstock.errors import InvalidOption, OperationFailed, PenstockError
from penstock.types import Record, Schema, record_dict

ATTEMPTS_MAX = 3
RECORD_TEXT_MAX = 2_000
DEAD_LETTERS = "dead_letters"
DEAD_LETTER_SCHEMA = Schema.parse("operation string, error string, traceback string, record string")


class ErrorPolicy(Enum):
    """What an operation does with a record it raises on."""

    FAIL = "fail"
    SKIP = "skip"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"

    @staticmethod
    def parse(value: str | ErrorPolicy, operation: str) -> ErrorPolicy:
        """Read the public option."""
        try:
            return ErrorPolicy(value)
        except ValueError:
            allowed = ", ".join(policy.value for policy in ErrorPolicy)
            raise InvalidOption(option="on_error", given=value, allowed=allowed, operation=operation) from None


@dataclass(slots=True)
class ErrorCounts:
    """How many records took which way out."""

    skipped: int = 0
    retried: int = 0
    dead_letters: int = 0


class Errors:
    """The policy of one operation at work; the generated loops call `handle` when a record raises."""

    def __init__(self, operation: str, policy: ErrorPolicy = ErrorPolicy.FAIL) -> None:
        self.operation = operation
        self.counts = ErrorCounts()
        self.dead_letters: list[Record] = []
        self._policy = policy
        self._retrying: Record | None = None
        self._attempts = 0

    def handle(self, record: Record, error: Exception) -> bool:
        """Apply the policy; True means: try this record once more.

        Raises
        ------
        OperationFailed
            When the policy is to fail, or when every retry has failed.
        """
        policy = self._policy
        if policy is ErrorPolicy.SKIP:
            self.counts.skipped += 1
            return False
        if policy is ErrorPolicy.DEAD_LETTER:
            self.counts.dead_letters += 1
            self.dead_letters.append(
                DEAD_LETTER_SCHEMA.record_type(
                    self.operation, describe_error(error), user_traceback(error), record_text(record)
                )
            )
            return False
        if policy is ErrorPolicy.RETRY:
            if record is not self._retrying:
                self._retrying, self._attempts = record, 0
            self._attempts += 1
            if self._attempts <= ATTEMPTS_MAX:
                self.counts.retried += 1
                return True
        raise OperationFailed(
            operation=self.operation,
            cause=describe_error(error),
            record=record_text(record),
            user_traceback=user_traceback(error),
        ) from error


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
