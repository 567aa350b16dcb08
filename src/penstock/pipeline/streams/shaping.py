"""Small verbs on the shape of records: drop, rename, cast, nulls, explode, union by name, sample, limit, tap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.checks import OneOf, Whole
from penstock.errors import InvalidOption, PenstockError, TypeMismatch
from penstock.expr import Column, call, coalesce, col, lit, when
from penstock.expr.text import expr
from penstock.operators import Explode, Filter, Limit, Project
from penstock.pipeline.streams.base import Builder, plain_names
from penstock.pipeline.streams.projecting import project
from penstock.types import BOOLEAN, STRING, DataType, Field, Record, TypeKind, quoted

if TYPE_CHECKING:
    from penstock.pipeline.streams.stream import Stream

_SHARES = 1 << 20


class ShapingVerbs(Builder):
    """What a stream can do with the shape of its records."""

    def select_expr(self, *texts: str, name: str | None = None, on_error: str = "fail") -> Stream:
        """Keep or compute columns written as SQL text: ``select_expr("ad", "price * 2 AS twice")``."""
        columns: list[Column] = []
        for text in texts:
            columns += map(_column, self.schema.names) if text == "*" else [expr(text)]
        return project(self, columns, name, on_error)

    selectExpr = select_expr

    def with_column(self, label: str, column: Column, *, name: str | None = None, on_error: str = "fail") -> Stream:
        """Add one computed column, or replace the one of that name."""
        if not isinstance(column, Column):
            what = f"{column!r} is not a column expression."
            raise TypeMismatch(what=what, operation=name or "with_column", hint="Write ps.lit(…) for a constant.")
        return project(self, [column.alias(label)], name, on_error, keep=True)

    def drop(self, *columns: str | Column, name: str | None = None) -> Stream:
        """Leave columns out."""
        columns = plain_names(columns)
        self._check(columns, name or "drop")
        left = [each for each in self.schema.names if each not in columns]
        if not left:
            raise InvalidOption(option="columns", given=columns, allowed="fewer than all", operation=name or "drop")
        return self._then(Project(tuple(map(_column, left))), name)

    def rename(self, columns: Mapping[str, str] | None = None, *, name: str | None = None, **more: str) -> Stream:
        """Give columns other names: ``rename({"old": "new"})``, or ``rename(old="new")``."""
        columns = _given(columns, more, name or "rename", '{"old": "new"}')
        self._check(tuple(columns), name or "rename")
        made = [_column(each).alias(columns.get(each, each)) for each in self.schema.names]
        return self._then(Project(tuple(made)), name)

    with_columns_renamed = rename

    def with_column_renamed(self, existing: str, new: str, *, name: str | None = None) -> Stream:
        """Give one column another name."""
        return self.rename({existing: new}, name=name)

    def cast(
        self,
        types: Mapping[str, str | DataType] | None = None,
        *,
        name: str | None = None,
        on_error: str = "fail",
        **more: str | DataType,
    ) -> Stream:
        """Convert columns: ``cast({"price": "decimal(10,2)", "n": "bigint"})``, or ``cast(n="bigint")``."""
        types = _given(types, more, name or "cast", '{"n": "bigint"}')
        self._check(tuple(types), name or "cast")
        made = [_column(label).cast(kind).alias(label) for label, kind in types.items()]
        return self._then(Project(tuple(made), keep=True), name, on_error)

    def dropna(self, subset: str | Sequence[str] | None = None, *, how: str = "any", name: str | None = None) -> Stream:
        """Keep the records without a null, or NaN, in any column, or in those of ``subset``.

        With ``how="all"`` only records that have nothing else are left out.
        """
        label = name or "dropna"
        every = OneOf(_Nulls).read("how", how, operation=label) is _Nulls.ANY
        valid = [~_is_missing(self.schema.field(each)) for each in self._subset(subset, label)]
        together = reduce(lambda one, other: one & other if every else one | other, valid)
        return self._then(Filter(together), name)

    def fillna(self, value: object, subset: str | Sequence[str] | None = None, *, name: str | None = None) -> Stream:
        """Put a value in the place of nulls and NaN: in all columns of its kind, in those of ``subset``, or by a dict.

        Examples
        --------
        >>> events.fillna(0)                                # doctest: +SKIP
        >>> events.fillna({"price": 0, "city": "unknown"})  # doctest: +SKIP
        """
        label = name or "fillna"
        given = value if isinstance(value, Mapping) else dict.fromkeys(self._subset(subset, label), value)
        self._check(tuple(given), label)
        made = [
            _filled(self.schema.field(each), one) for each, one in given.items() if _fits(self.schema.field(each), one)
        ]
        if not made:
            raise InvalidOption(option="value", given=value, allowed="a value of some column's type", operation=label)
        return self._then(Project(tuple(made), keep=True), name)

    def _subset(self, subset: str | Sequence[str] | None, label: str) -> tuple[str, ...]:
        names = self.schema.names if subset is None else plain_names((subset,))
        self._check(names, label)
        return names

    def explode(
        self,
        column: str,
        *into: str,
        outer: bool = False,
        position: str | None = None,
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Make a record of each element of an array, or of each entry of a map.

        Parameters
        ----------
        column : str
            The array or map; what is made takes its place.
        *into : str
            A name for the element (the column's own by default), or names for key and value (``key``, ``value``).
        outer : bool
            Whether records without elements stay, with null.
        position : str, optional
            Name of a column for the place of the element, from 0.

        Examples
        --------
        >>> orders.explode("items", "item").select("id", col("item.price"))  # doctest: +SKIP
        """
        is_map = column in self.schema and self.schema.field(column).type.kind is TypeKind.MAP
        names = into or (("key", "value") if is_map else (column,))
        return self._then(Explode(column, tuple(names), position, outer), name, on_error)

    def union_by_name(self, *others: Stream, allow_missing: bool = False, name: str | None = None) -> Stream:
        """Bring streams together by the names of their columns, whatever the order.

        With ``allow_missing``, columns that a stream does not have are null there.
        """
        label = name or "union_by_name"
        streams = [self._unkeyed, *others]
        wanted: dict[str, DataType] = {}
        for stream in streams:
            for field in stream.schema:
                wanted.setdefault(field.name, field.type)
        made = []
        for stream in streams:
            missing = [each for each in wanted if each not in stream.schema]
            if missing and not allow_missing:
                raise TypeMismatch(
                    what=f"({stream.schema.ddl}) has no column '{missing[0]}'.",
                    operation=label,
                    hint="Give allow_missing=True for nulls.",
                )
            columns = [
                (_column(each) if each in stream.schema else lit(None)).cast(kind).alias(each)
                for each, kind in wanted.items()
            ]
            made.append(stream._then(Project(tuple(_nullable(column) for column in columns)), None))
        first, *rest = made
        return first.merge(*rest, name=name)

    def unionByName(self, other: Stream, allowMissingColumns: bool = False) -> Stream:
        """Do what :meth:`union_by_name` does, in PySpark's words."""
        return self.union_by_name(other, allow_missing=allowMissingColumns)

    def distinct(self, *, name: str | None = None) -> Stream:
        """Let each different record pass once; what has passed is held for as long as the job runs."""
        return self.drop_duplicates(name=name)  # type: ignore[attr-defined,no-any-return]

    def sample(self, fraction: float, seed: int = 0, *, name: str | None = None) -> Stream:
        """Keep about a share of the records.

        Which ones follows from their values and the seed, so that a replay after a failure keeps the same; records
        that are equal stay or go together.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            allowed = "0 to 1; a record is kept once or not at all"
            raise InvalidOption(option="fraction", given=fraction, allowed=allowed, operation=name or "sample")
        Whole(0).read("seed", seed)
        mark = call("xxhash64", lit(seed), *map(_hashable, self.schema))
        return self._then(Filter(call("pmod", mark, lit(_SHARES)) < lit(round(fraction * _SHARES))), name)

    def limit(self, n: int, *, name: str | None = None) -> Stream:
        """Let the first ``n`` records pass, over all partitions, and no more.

        Which ones they are depends on which come first. When every record on its way to a sink would meet a limit that
        is full, the job ends by itself, as if it were drained.

        Examples
        --------
        >>> import penstock as ps
        >>> ps.stream("numbers", ps.records([(1,), (2,), (3,)], schema="n int")).limit(2).take()
        [{'n': 1}, {'n': 2}]
        """
        try:
            count = Whole(0).read("n", n)
        except PenstockError as error:
            raise error.at(name or "limit") from None
        return self._unkeyed._then(Limit(count), name)

    def tap(self, function: Callable[[Record], Any], *, name: str | None = None, on_error: str = "fail") -> Stream:
        """Call a function for each record, for what it does; the records go on as they are."""

        def look(record: Record) -> Record:
            function(record)
            return record

        return self.map(look, schema=self.schema, name=name or "tap", on_error=on_error)  # type: ignore[attr-defined,no-any-return]

    def _check(self, columns: tuple[str, ...], label: str) -> None:
        try:
            for column in columns:
                self.schema.field(column)
        except PenstockError as error:
            raise error.at(label) from None


class _Nulls(Enum):
    ANY = "any"
    ALL = "all"


def _is_missing(field: Field) -> Column:
    column = _column(field.name)
    return column.is_null() | column.isNaN() if field.type.is_fractional else column.is_null()


def _fits(field: Field, value: object) -> bool:
    """Whether a value is of a column's kind: a number, a text or a truth value."""
    if isinstance(value, bool):
        return field.type == BOOLEAN
    if isinstance(value, str):
        return field.type == STRING
    return field.type.is_numeric and isinstance(value, int | float | Decimal)


def _filled(field: Field, value: object) -> Column:
    column = _column(field.name)
    filled = lit(value).cast(field.type)
    if field.type.is_fractional:
        return when(_is_missing(field), filled).otherwise(column).alias(field.name)
    return coalesce(column, filled).alias(field.name)


def _given(columns: Mapping[str, Any] | None, more: Mapping[str, Any], label: str, example: str) -> dict[str, Any]:
    """What a dict and keywords name together."""
    if columns is not None and not isinstance(columns, Mapping):
        raise TypeMismatch(what=f"{columns!r} is not a dict.", operation=label, hint=f"Write {label}({example}).")
    given = {**(columns or {}), **more}
    if not given:
        raise TypeMismatch(what="no column is named.", operation=label, hint=f"Write {label}({example}).")
    return given


def _hashable(field: Field) -> Column:
    """A column as a hash can be made of it: maps have none in Spark."""
    return call("to_json", _column(field.name)) if "map<" in field.type.ddl else _column(field.name)


def _column(name: str) -> Column:
    return col(quoted(name))


def _nullable(column: Column) -> Column:
    """Columns of several streams are equal only if nulls may come in all of them."""
    (inner,) = column.args
    return call("nvl", inner, inner).alias(str(column.payload))
