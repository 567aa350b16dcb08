"""What of a Kafka record becomes columns; readers make rows and Arrow columns of messages here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.kafka.headers import HEADERS, columns_of
from penstock.errors import InvalidOption, nearest
from penstock.types import BIGINT, BINARY, INT, STRING, TIMESTAMP, Field, Record, Schema, to_array

if TYPE_CHECKING:
    from confluent_kafka import Message

DEFAULT = ("key", "value", "timestamp", "partition", "offset")
Messages = Sequence["Message"]


def _timestamps(messages: Messages) -> list[int | None]:
    return [1000 * time if kind else None for kind, time in (each.timestamp() for each in messages)]


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


_COLUMNS: dict[str, tuple[Field, Callable[[Messages], list[Any]]]] = {
    "key": (Field("key", BINARY), lambda messages: [each.key() for each in messages]),
    "value": (Field("value", BINARY), lambda messages: [each.value() for each in messages]),
    "headers": (Field("headers", HEADERS), lambda messages: columns_of(each.headers() for each in messages)),
    "timestamp": (Field("timestamp", TIMESTAMP), _timestamps),
    "partition": (Field("partition", INT, nullable=False), lambda messages: [each.partition() for each in messages]),
    "offset": (Field("offset", BIGINT, nullable=False), lambda messages: [each.offset() for each in messages]),
}

_TEXTS: dict[str, tuple[Field, Callable[[Messages], list[Any]]]] = {
    "key": (Field("key", STRING), lambda messages: [_text(each.key()) for each in messages]),
    "value": (Field("value", STRING), lambda messages: [_text(each.value()) for each in messages]),
}


class Columns:
    """The columns that a source has.

    Parameters
    ----------
    names : sequence of str
        Of ``key``, ``value``, ``headers``, ``timestamp``, ``partition``, ``offset``.
    text : bool
        Whether ``key`` and ``value`` are text.
    """

    def __init__(self, names: Sequence[str], *, text: bool = False) -> None:
        if isinstance(names, str) or not names:
            raise InvalidOption(option="columns", given=names, allowed=f"a list of some of {', '.join(_COLUMNS)}")
        for name in names:
            if name not in _COLUMNS:
                hint = nearest(name, _COLUMNS) if isinstance(name, str) else ""
                raise InvalidOption(option="columns", given=name, allowed=", ".join(_COLUMNS), hint=hint)
        known = {**_COLUMNS, **_TEXTS} if text else _COLUMNS
        self._text = text
        self.schema = Schema(tuple(known[name][0] for name in names))
        self._readers = [known[name][1] for name in names]

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Columns, text=self._text), (self.schema.names,)

    def rows(self, messages: Messages) -> list[Record]:
        """Make records."""
        return list(map(self.schema.record_type, *(read(messages) for read in self._readers)))

    def batch(self, messages: Messages) -> pa.RecordBatch:
        """Make columns."""
        types = [field.type for field in self.schema]
        arrays = [to_array(read(messages), each) for read, each in zip(self._readers, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)
