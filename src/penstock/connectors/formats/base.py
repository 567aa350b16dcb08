"""What a format is: it knows its columns, and makes functions that read and write records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import TypeMismatch
from penstock.operators.base import Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.loop import compile_loop
from penstock.types import BINARY, Record, Schema, attribute

Read = Callable[[bytes], list[object]]
"""From bytes to the values of the columns."""
Write = Callable[[list[Record]], list[bytes]]


class Encoding(ABC):
    """What a sink writes, settled before anything starts. Configuration only, sent to the workers through Spark."""

    @abstractmethod
    def encoder(self) -> Write:
        """Open it on a worker."""


class Format(ABC):
    """How records are written as bytes. Configuration only, sent to the workers through Spark."""

    kind: ClassVar[str]

    @abstractmethod
    def resolved(self) -> Format:
        """Return the format for reading, with all that it has to ask others for; asked once, where it is written."""

    @abstractmethod
    def columns(self) -> Schema:
        """Columns of what is read; after `resolved`."""

    @abstractmethod
    def reader(self) -> Read:
        """Open it for reading, on a worker."""

    @abstractmethod
    def encoding(self, schema: Schema, topic: str) -> Encoding:
        """Settle how records of a schema are written, and have that registered; or refuse what cannot be written."""

    @abstractmethod
    def describe(self) -> str:
        """A few words for `penstock explain`."""


@dataclass(frozen=True)
class Parse(Operation):
    """Read a binary column by a format."""

    format: Format
    column: str = "value"
    keep: tuple[str, ...] = ()
    """Columns of the input that stay, behind those of the format."""
    kind = "parse"

    def bind(self, schema: Schema) -> Schema:
        found = schema.field(self.column).type
        if found != BINARY:
            raise TypeMismatch(what=f"column '{self.column}' is {found.ddl}; {self.format.kind} is read from binary.")
        return Schema((*self.format.columns().fields, *map(schema.field, self.keep)))

    def build(self, schema: Schema, errors: Errors) -> Operator:
        output = self.bind(schema)
        names: dict[str, object] = {"read": self.format.reader(), "T": output.record_type}
        kept = "".join(f", r.{attribute(name)}" for name in self.keep)
        body = [f"append(T(*read(r.{attribute(self.column)}){kept}))"]
        return Operator(compile_loop(errors.operation, body, names, errors), schema=schema, output=output)

    def describe(self) -> str:
        beside = f", beside {', '.join(self.keep)}" if self.keep else ""
        return f"{self.format.describe()}: {self.format.columns().ddl}{beside}"
