"""Verbs that keep, compute and decode columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.checks import OneOf
from penstock.connectors.formats.base import Format, Parse
from penstock.errors import InvalidOption, TypeMismatch
from penstock.expr import Column, col, infer
from penstock.expr.column import Op
from penstock.expr.text import expr
from penstock.operators import Filter, ParseJson, TimeUnit
from penstock.pipeline.steps import named_columns
from penstock.pipeline.streams.base import Builder
from penstock.pipeline.streams.projecting import project
from penstock.types import Schema, TypeKind, quoted

if TYPE_CHECKING:
    from penstock.pipeline.streams.stream import Stream


class ColumnVerbs(Builder):
    """What a stream can do with its columns."""

    def filter(self, condition: Column | str, *, name: str | None = None, on_error: str = "fail") -> Stream:
        """Keep the records for which a condition is true: an expression, or SQL text such as ``"price > 10"``."""
        if isinstance(condition, str):
            condition = expr(condition)
        if not isinstance(condition, Column):
            raise TypeMismatch(
                what=f"{condition!r} is not a column expression.",
                operation=name or "filter",
                hint='Write ps.col("x") == 1 or "x = 1". A function of yours can leave records out in flat_map(…).',
            )
        return self._then(Filter(condition), name, on_error)

    where = filter

    def select(
        self,
        *columns: str | Column | Sequence[str | Column],
        name: str | None = None,
        on_error: str = "fail",
        **named: Column,
    ) -> Stream:
        """Keep or compute columns, in this order; ``total=ps.col("a") + 1`` names a computed one.

        ``"*"`` stands for all columns, ``"s.*"`` for the members of the struct ``s``. With ``F.explode("tags")`` among
        the columns, a record is made of each element.
        """
        if len(columns) == 1 and isinstance(columns[0], list | tuple):
            columns = tuple(columns[0])
        given = [each for column in columns for each in self._meant(column)]
        return project(self, named_columns(given, named, name or "select"), name, on_error)

    def _meant(self, column: object) -> list[Any]:
        """The columns that one stands for."""
        written = column.payload if isinstance(column, Column) and column.op is Op.REF else column
        if not isinstance(written, str) or not written.endswith("*"):
            return [column]
        place = written.removesuffix("*").removesuffix(".")
        if not place:
            return [col(quoted(each)) for each in self.schema.names]
        held = infer(col(place), self.schema).type
        if held.kind is not TypeKind.STRUCT:
            raise TypeMismatch(what=f"'{written}': '{place}' is {held.ddl}, no struct.", operation="select")
        return [col(f"{place}.{quoted(each.name)}") for each in held.fields]

    @property
    def columns(self) -> list[str]:
        """The names of the columns; their types are in ``schema``."""
        return list(self.schema.names)

    def with_columns(
        self,
        *columns: Column | Mapping[str, Column],
        name: str | None = None,
        on_error: str = "fail",
        **named: Column,
    ) -> Stream:
        """Add computed columns, or replace those of the same name; also given as a dict."""
        given = [column for column in columns if not isinstance(column, Mapping)]
        for each in columns:
            named = {**each, **named} if isinstance(each, Mapping) else named
        return project(self, named_columns(given, named, name or "with_columns"), name, on_error, keep=True)

    def parse(
        self,
        format: Format,
        *,
        column: str = "value",
        keep: str | Sequence[str] = (),
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Decode a binary column by a format: ``ps.avro(…)``, ``ps.protobuf(…)``, ``ps.json(…)``.

        A value that the format cannot read makes the record bad, which follows ``on_error``. Of the columns beside,
        those in ``keep`` stay, such as a topic's key.
        """
        if not isinstance(format, Format):
            raise InvalidOption(option="format", given=format, allowed="ps.avro(…), ps.protobuf(…) or ps.json(…)")
        kept = (keep,) if isinstance(keep, str) else tuple(keep)
        return self._then(Parse(format.resolved(), column, kept), name, on_error)

    def parse_json(
        self,
        schema: object,
        *,
        column: str = "value",
        timestamp_unit: str = "ms",
        keep: str | Sequence[str] = (),
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Decode a column that holds one JSON object per record.

        Members that the schema does not name are ignored, missing ones are null. A member of the wrong type
        makes the record bad, which follows ``on_error``. Timestamps are ISO-8601 text or numbers in ``timestamp_unit``.
        Of the columns beside, those in ``keep`` stay, such as a topic's key.
        """
        unit = OneOf(TimeUnit).read("timestamp_unit", timestamp_unit, operation=name or "parse_json")
        kept = (keep,) if isinstance(keep, str) else tuple(keep)
        return self._then(ParseJson(Schema.parse(schema), column, unit, kept), name, on_error)
