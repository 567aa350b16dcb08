"""explode: one record for each element of an array, or entry of a map."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TypeMismatch
from penstock.operators.base import BatchForm, BatchKind, BatchResult, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.loop import compile_loop
from penstock.types import INT, Field, Schema, TypeKind, attribute


@dataclass(frozen=True)
class Explode(Operation):
    """Put the elements of an array, or the entries of a map, into records of their own.

    Attributes
    ----------
    into : tuple of str
        Names for the element, or for key and value; they take the column's place.
    position : str or None
        Name of a column for the place of the element, from 0.
    outer : bool
        Whether a record without elements stays, with nulls.
    """

    column: str
    into: tuple[str, ...]
    position: str | None = None
    outer: bool = False
    kind = "explode"

    @property
    def batch_kind(self) -> BatchKind:  # type: ignore[override]
        fast = len(self.into) == 1 and not self.outer and self.position is None
        return BatchKind.VECTORISED if fast else BatchKind.LOOP

    def bind(self, schema: Schema) -> Schema:
        found = schema.field(self.column).type
        if found.kind not in (TypeKind.ARRAY, TypeKind.MAP) or found.element is None:
            raise TypeMismatch(what=f"'{self.column}' is {found.ddl}; explode takes an array or a map.")
        names = ("element",) if found.key is None else ("key", "value")
        if len(self.into) != len(names):
            raise TypeMismatch(what=f"explode of {found.ddl} makes {' and '.join(names)}, not {', '.join(self.into)}.")
        made = [Field(self.position, INT, self.outer)] if self.position else []
        made += [Field(self.into[0], found.key, self.outer)] if found.key is not None else []
        made.append(Field(self.into[-1], found.element))
        fields: list[Field] = []
        for field in schema:
            fields += made if field.name == self.column else [field]
        return Schema(tuple(fields))

    def column_of(self, column: str, schema: Schema) -> str | None:
        return column if column in schema and column != self.column and column not in self.into else None

    def build(self, schema: Schema, errors: Errors) -> Operator:
        output = self.bind(schema)
        is_map = schema.field(self.column).type.key is not None
        held = f"r.{attribute(self.column)}"
        made = [*(["p"] if self.position else []), *(["k", "v"] if is_map else ["v"])]
        values: list[str] = []
        for field in schema:
            values += made if field.name == self.column else [f"r.{attribute(field.name)}"]
        target = "k, v" if is_map else "v"
        items = "e.items()" if is_map else "e"
        loop = f"for p, {f'({target})' if is_map else target} in enumerate({items}):"
        body = [f"e = {held}", "if e:", f"    {loop if self.position else f'for {target} in {items}:'}"]
        body.append(f"        append(T({', '.join(values)}))")
        if self.outer:
            body += ["else:", f"    {' = '.join(made)} = None", f"    append(T({', '.join(values)}))"]
        process = compile_loop(errors.operation, body, {"T": output.record_type}, errors)
        return Operator(process, schema=schema, output=output, vectorised=self._vectorised(schema, output))

    def _vectorised(self, schema: Schema, output: Schema) -> BatchForm | None:
        if self.batch_kind is not BatchKind.VECTORISED:
            return None
        at = schema.names.index(self.column)

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            lists = batch.column(at)
            rows = batch.take(pc.list_parent_indices(lists)) if len(lists) else batch
            columns = [pc.list_flatten(lists) if i == at else rows.column(i) for i in range(batch.num_columns)]
            return BatchResult(pa.RecordBatch.from_arrays(columns, schema=output.arrow))

        return vectorised

    def describe(self) -> str:
        return f"{self.column} into {', '.join(self.into)}{', outer' if self.outer else ''}"
