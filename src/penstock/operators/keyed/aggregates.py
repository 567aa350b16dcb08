"""Aggregates as mergeable partials: count, sum, min, max, mean, first, last and users' own.

An aggregate keeps its partial in *slots*. Written as source, it says what a single record's partial is and how
the slots absorb another partial; adding a record is absorbing its partial, so both halves of an aggregation
share one text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from penstock.errors import ArithmeticFailed, InvalidOption, TypeMismatch
from penstock.types import BIGINT, BINARY, DOUBLE, DataType, Schema, TypeKind, attribute, parse_type

_INT64 = (-(1 << 63), (1 << 63) - 1)


def int64(value: int | None) -> int | None:
    """Return a sum that fits a bigint, or raise."""
    if value is not None and not _INT64[0] <= value <= _INT64[1]:
        raise ArithmeticFailed(what=f"the sum {value} does not fit a bigint.")
    return value


class Aggregate(ABC):
    """One aggregate over a group; immutable."""

    word: ClassVar[str]
    arrow_functions: tuple[str, ...] = ()
    """Arrow's grouped functions that give the slots, or none if only the loop can."""
    ordered: ClassVar[bool] = False
    """Whether the result depends on the order in which records come."""

    @property
    def column(self) -> str | None:
        """The input column, if the aggregate reads one."""
        return None

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Raise if the aggregate does not fit the input."""

    @abstractmethod
    def output(self, schema: Schema) -> DataType:
        """Type of the result."""

    @abstractmethod
    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        """Types of the partial."""

    @abstractmethod
    def of_record(self) -> tuple[str, ...]:
        """Expressions over ``r`` for the partial of one record, one for each slot."""

    @abstractmethod
    def absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        """Statements by which the places ``slots`` absorb the partial in the names ``other``."""

    def before_absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        """Statements that may raise; they run before any `absorb`, so that a bad record changes no slot."""
        del slots, other
        return []

    @abstractmethod
    def result(self, slots: tuple[str, ...]) -> str:
        """Expression for the result."""

    def pack(self, slot: str) -> str:
        """Expression for a slot on its way to another process."""
        return slot

    def unpack(self, slot: str) -> str:
        """Expression for a slot that came from another process."""
        return slot

    @property
    def names(self) -> dict[str, object]:
        """What the expressions refer to."""
        return {}

    def __str__(self) -> str:
        return f"{self.word}({self.column or ''})"


@dataclass(frozen=True)
class Count(Aggregate):
    """Number of records, or of those whose column is not null."""

    of: str | None = None
    word = "count"

    @property
    def column(self) -> str | None:
        return self.of

    @property
    def arrow_functions(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("count",)

    def check(self, schema: Schema) -> None:
        if self.of is not None:
            schema.field(self.of)

    def output(self, schema: Schema) -> DataType:
        return BIGINT

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return (BIGINT,)

    def of_record(self) -> tuple[str, ...]:
        return ("1",) if self.of is None else (f"0 if r.{attribute(self.of)} is None else 1",)

    def absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        return [f"{slots[0]} += {other[0]}"]

    def result(self, slots: tuple[str, ...]) -> str:
        return slots[0]


@dataclass(frozen=True)
class _OfColumn(Aggregate):
    of: str

    @property
    def column(self) -> str | None:
        return self.of

    def _type(self, schema: Schema) -> DataType:
        return schema.field(self.of).type

    def check(self, schema: Schema) -> None:
        found = self._type(schema)
        if found.kind is TypeKind.DECIMAL or found.is_nested:
            hint = f'Use group_by(…).agg(F.{self.word}("{self.of}")).'
            raise TypeMismatch(what=f"{self} holds no {found.ddl}.", hint=hint)

    def output(self, schema: Schema) -> DataType:
        return self._type(schema)

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return (self._type(schema),)

    def of_record(self) -> tuple[str, ...]:
        return (f"r.{attribute(self.of)}",)

    def result(self, slots: tuple[str, ...]) -> str:
        return slots[0]

    def _numeric(self, schema: Schema) -> DataType:
        found = self._type(schema)
        if not found.is_numeric:
            raise TypeMismatch(what=f"{self} needs a number, but '{self.of}' is {found.ddl}.")
        if found.kind is TypeKind.DECIMAL:
            raise TypeMismatch(what=f"{self} adds no decimals.", hint="Use group_by(…).agg(F.sum(…)).")
        return DOUBLE if found.is_fractional else BIGINT


class Sum(_OfColumn):
    """Sum of a column's values that are not null; null if there are none."""

    word = "sum"
    arrow_functions: tuple[str, ...] = ("sum",)

    def check(self, schema: Schema) -> None:
        self._numeric(schema)

    def output(self, schema: Schema) -> DataType:
        return self._numeric(schema)

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return (self._numeric(schema),)

    def absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        (s,), (x,) = slots, other
        return [f"if {x} is not None: {s} = {x} if {s} is None else {s} + {x}"]

    def pack(self, slot: str) -> str:
        return f"fits({slot})"

    def result(self, slots: tuple[str, ...]) -> str:
        return f"fits({slots[0]})"

    @property
    def names(self) -> dict[str, object]:
        return {"fits": _fits}


def _fits(value: Any) -> Any:
    return int64(value) if type(value) is int else value


class _Extreme(_OfColumn):
    _sign: ClassVar[str]

    def check(self, schema: Schema) -> None:
        found = self._type(schema)
        super().check(schema)
        if found.kind is TypeKind.BINARY:
            raise TypeMismatch(what=f"{self} needs values with an order, but '{self.of}' is {found.ddl}.")

    def absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        (s,), (x,) = slots, other
        # `s != s` is true for NaN alone: any number replaces it, so NaN is the result only if there is nothing else.
        return [f"if {x} is not None and ({s} is None or {x} {self._sign} {s} or {s} != {s}): {s} = {x}"]


class Min(_Extreme):
    """Smallest value that is not null; NaN only if there is no number."""

    word = "min"
    arrow_functions = ("min",)
    _sign = "<"


class Max(_Extreme):
    """Largest value that is not null; NaN only if there is no number."""

    word = "max"
    arrow_functions = ("max",)
    _sign = ">"


class Mean(Sum):
    """Mean of a column's values that are not null, as a double; null if there are none."""

    word = "mean"
    arrow_functions = ("sum", "count")

    def output(self, schema: Schema) -> DataType:
        self._numeric(schema)
        return DOUBLE

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return self._numeric(schema), BIGINT

    def of_record(self) -> tuple[str, ...]:
        return f"r.{attribute(self.of)}", f"0 if r.{attribute(self.of)} is None else 1"

    def absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        return [*super().absorb(slots[:1], other[:1]), f"{slots[1]} += {other[1]}"]

    def result(self, slots: tuple[str, ...]) -> str:
        return f"{slots[0]} / {slots[1]} if {slots[1]} else None"


class First(_OfColumn):
    """The first value to arrive that is not null."""

    word = "first"
    ordered = True

    def absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        return [f"if {slots[0]} is None: {slots[0]} = {other[0]}"]


class Last(_OfColumn):
    """The last value to arrive that is not null."""

    word = "last"
    ordered = True

    def absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        return [f"if {other[0]} is not None: {slots[0]} = {other[0]}"]


class Mergeable(ABC):
    """A user-defined aggregate: subclass it and give an instance to :func:`custom`.

    The state is made of plain values (numbers, text, bytes, lists, dicts), because it travels between processes.
    """

    @abstractmethod
    def init(self) -> Any:
        """State of an empty group."""

    @abstractmethod
    def add(self, state: Any, record: Any) -> Any:
        """State after one more record."""

    @abstractmethod
    def merge(self, left: Any, right: Any) -> Any:
        """State of two groups together; must be associative."""

    @abstractmethod
    def result(self, state: Any) -> Any:
        """The value to show."""


class Opaque(Aggregate):
    """An aggregate whose partial result is one value that only functions of its own understand."""

    def slots(self, schema: Schema) -> tuple[DataType, ...]:
        return (BINARY,)

    def absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        return [f"{slots[0]} = {other[0]}"]  # which `before_absorb` has made


@dataclass(frozen=True)
class Custom(Opaque):
    """A user's mergeable aggregate."""

    of: Mergeable
    type: DataType
    word = "custom"
    ordered = True  # its merge is associative; nobody says that it is commutative

    def check(self, schema: Schema) -> None:
        missing = [name for name in ("init", "add", "merge", "result") if not callable(getattr(self.of, name, None))]
        if missing:
            raise InvalidOption(option="aggregate", given=self.of, allowed=f"an object with a method '{missing[0]}'")

    def output(self, schema: Schema) -> DataType:
        return self.type

    @property
    def _name(self) -> str:
        return f"custom_{id(self.of)}"

    def of_record(self) -> tuple[str, ...]:
        return (f"{self._name}.add({self._name}.init(), r)",)

    def before_absorb(self, slots: tuple[str, ...], other: tuple[str, ...]) -> list[str]:
        return [f"{other[0]} = {self._name}.merge({slots[0]}, {other[0]})"]

    def result(self, slots: tuple[str, ...]) -> str:
        return f"{self._name}.result({slots[0]})"

    def pack(self, slot: str) -> str:
        return f"encode({slot})"

    def unpack(self, slot: str) -> str:
        return f"decode({slot})"

    @property
    def names(self) -> dict[str, object]:
        return {self._name: self.of, "encode": msgspec.msgpack.encode, "decode": msgspec.msgpack.decode}

    def __str__(self) -> str:
        return f"{type(self.of).__name__}()"


def count(column: str | None = None) -> Aggregate:
    """Count records, or those whose ``column`` is not null."""
    return Count(column)


def sum(column: str) -> Aggregate:
    """Sum a column without its nulls: a bigint (overflow is an error) or a double; null where all are null."""
    return Sum(column)


def min(column: str) -> Aggregate:
    """Smallest value of a column that is not null."""
    return Min(column)


def max(column: str) -> Aggregate:
    """Largest value of a column that is not null."""
    return Max(column)


def mean(column: str) -> Aggregate:
    """Mean of a column without its nulls, a double; null where all are null."""
    return Mean(column)


def first(column: str) -> Aggregate:
    """First value of a column to arrive."""
    return First(column)


def last(column: str) -> Aggregate:
    """Last value of a column to arrive."""
    return Last(column)


def custom(aggregate: Mergeable, *, type: str) -> Aggregate:
    """Use a user-defined mergeable aggregate whose result has the given DDL type."""
    return Custom(aggregate, parse_type(type))


def top(count: int, by: str, *columns: str, largest: bool = True) -> Aggregate:
    """The records of a group with the largest values of a column, the best first, as an array of structs.

    Parameters
    ----------
    count : int
        How many, up to 1,000.
    by : str
        The column; records without a value in it are left out.
    *columns : str
        Other columns to show. At equal values they decide: the order of arrival would be another one in a replay.
    largest : bool
        False: those with the smallest values.

    Examples
    --------
    >>> bids.key_by("item").window("1m", on="at").aggregate(best=ps.agg.top(3, "price", "bidder"))  # doctest: +SKIP
    """
    from penstock.operators.keyed.tops import made

    return made(count, by, columns, largest=largest)
