"""The best few records of a group, as an aggregate that holds no more than these: `ps.agg.top`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from penstock.checks import Flag, Whole
from penstock.errors import InvalidOption, TypeMismatch
from penstock.operators.keyed.aggregates import Opaque
from penstock.operators.keyed.statistics import nan_last
from penstock.types import DataType, Field, Schema, TypeKind, array_of, attribute, struct_of, struct_type

TOP_MAX = 1_000
_encode = msgspec.msgpack.encode
Best = list[list[Any]]
"""What records are ordered by, and the records, packed; the best first."""


@dataclass(frozen=True)
class Top(Opaque):
    """The ``count`` records with the largest or smallest values of a column, as an array of structs."""

    count: int
    by: str
    columns: tuple[str, ...]
    largest: bool
    struct: DataType | None = None
    """Type of what is shown, once the input is known."""
    word = "top"

    @property
    def _shown(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.by, *self.columns)))

    def check(self, schema: Schema) -> None:
        for name in self._shown:
            schema.field(name)
        kind = schema.field(self.by).type
        if kind.is_nested or kind.kind in (TypeKind.DECIMAL, TypeKind.BINARY):
            raise TypeMismatch(what=f"{self} cannot order by {kind.ddl}.", hint="Order by a number, a text or a time.")

    def output(self, schema: Schema) -> DataType:
        struct = self.over(schema).struct
        assert struct is not None
        return array_of(struct)

    def over(self, schema: Schema) -> Top:
        """The same over an input that is known."""
        return replace(self, struct=struct_of([Field(name, schema.field(name).type) for name in self._shown]))

    @property
    def _name(self) -> str:
        return f"top_{id(self)}"

    def of_record(self) -> tuple[str, ...]:
        values = ", ".join(f"r.{attribute(name)}" for name in self._shown)
        return (f"top_of(r.{attribute(self.by)}, ({values},))",)

    def before_absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        return [f"{other[0]} = {self._name}({slots[0]}, {other[0]})"]

    def result(self, slots: tuple[str, ...]) -> str:
        return f"{self._name}_shown({slots[0]})"

    def pack(self, slot: str) -> str:
        return f"top_encode({slot})"

    def unpack(self, slot: str) -> str:
        return f"top_decode({slot})"

    @property
    def names(self) -> dict[str, object]:
        assert self.struct is not None
        decode = msgspec.msgpack.Decoder(struct_type(self.struct)).decode
        return {
            "top_of": _of,
            self._name: self._together,
            f"{self._name}_shown": lambda best: [decode(packed) for _, packed in best],
            "top_encode": _encode,
            "top_decode": msgspec.msgpack.decode,
        }

    def _together(self, left: Best, right: Best) -> Best:
        both = [*left, *right]
        # At equal values the records themselves decide: which came first would be another order in a replay.
        both.sort(key=lambda entry: (nan_last(entry[0]), entry[1]), reverse=self.largest)
        return both[: self.count]

    def __str__(self) -> str:
        return f"top({self.count}, {', '.join(self._shown)}{'' if self.largest else ', smallest'})"


def _of(by: Any, values: tuple[Any, ...]) -> Best:
    return [] if by is None else [[by, _encode(values)]]


def made(count: object, by: object, columns: tuple[object, ...], *, largest: object) -> Top:
    """Read the options of `ps.agg.top`, which has the words on them."""
    number = Whole(1, TOP_MAX).read("count", count)
    names = [name for name in (by, *columns) if isinstance(name, str)]
    if len(names) != len(columns) + 1:
        raise InvalidOption(option="columns", given=(by, *columns), allowed="names of columns")
    return Top(number, names[0], tuple(names[1:]), Flag().read("largest", largest))
