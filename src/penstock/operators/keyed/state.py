"""What operations with keyed state share: packing it for a snapshot, and naming who could not make a result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from penstock.errors import OperationFailed, PenstockError
from penstock.operators.errors import describe_error, user_traceback

_encode = msgspec.msgpack.Encoder().encode


def pack_state(state: msgspec.Struct, operation: str) -> bytes:
    """Pack a state; what a user's aggregate keeps may be nothing that can be stored."""
    try:
        return _encode(state)
    except (TypeError, OverflowError) as error:
        raise PenstockError(
            f"its state cannot be stored: {error}.",
            operation=operation,
            hint="User-defined aggregates keep plain values: numbers, text, bytes, lists, dicts.",
        ) from error


@contextmanager
def making_results(operation: str, what: str) -> Iterator[None]:
    """Name the operation, and ``what`` it was making, in an error of a user's aggregate."""
    try:
        yield
    except PenstockError as error:
        raise error.at(operation) from None
    except Exception as error:
        raise OperationFailed(
            operation=operation,
            cause=describe_error(error),
            record=what,
            user_traceback=user_traceback(error),
        ) from error
