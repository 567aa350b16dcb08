"""Operations on columns by expressions: filter, select, with_columns, split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidOption, TypeMismatch
from penstock.expr import Column, col, infer, predicate_source, record_source, vectorise
from penstock.expr.column import Op
from penstock.operators.base import MAIN, BatchResult, Operation, Operator
from penstock.operators.errors import DEAD_LETTERS, Errors
from penstock.operators.loop import compile_loop
from penstock.types import BOOLEAN, Schema

REST = "rest"
"""The port of a split that takes what no condition matched."""
_TAKEN = (REST, MAIN, DEAD_LETTERS)


def _check_condition(condition: Column, schema: Schema) -> None:
    found = infer(condition, schema).type
    if found != BOOLEAN:
        raise TypeMismatch(
            what=f"the condition {condition} is {found.ddl}, not boolean.", hint="Compare it with something."
        )


@dataclass(frozen=True)
class Filter(Operation):
    """Keep the records for which the condition is true."""

    condition: Column
    kind = "filter"

    def bind(self, schema: Schema) -> Schema:
        _check_condition(self.condition, schema)
        return schema

    def column_of(self, column: str, schema: Schema) -> str:
        del schema
        return column

    def build(self, schema: Schema, errors: Errors) -> Operator:
        names: dict[str, object] = {}
        source = predicate_source(self.condition, schema, names)
        process = compile_loop(errors.operation, [f"if {source}: append(r)"], names, errors)
        mask = vectorise(self.condition, schema)

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            return BatchResult(batch.filter(mask(batch)))

        return Operator(process, schema=schema, output=schema, vectorised=vectorised)

    def describe(self) -> str:
        return str(self.condition)


@dataclass(frozen=True)
class Project(Operation):
    """Compute the output columns from expressions: `select` and `with_columns`."""

    columns: tuple[Column, ...]
    keep: bool = False
    """Whether the input's columns stay, those of the same name replaced (with_columns)."""

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "with_columns" if self.keep else "select"

    def _resolved(self, schema: Schema) -> tuple[list[Column], Schema]:
        given = [(infer(column, schema), column) for column in self.columns]
        if not self.keep:
            return [column for _, column in given], Schema(tuple(field for field, _ in given))
        replaced = {field.name: (field, column) for field, column in given}
        merged = [replaced.pop(old.name, (old, col(old.name))) for old in schema.fields]
        merged += replaced.values()
        return [column for _, column in merged], Schema(tuple(field for field, _ in merged))

    def bind(self, schema: Schema) -> Schema:
        if not self.columns:
            raise InvalidOption(option="columns", given=(), allowed="at least one column")
        return self._resolved(schema)[1]

    def column_of(self, column: str, schema: Schema) -> str | None:
        columns, output = self._resolved(schema)
        made = columns[output.names.index(column)]
        while made.op is Op.ALIAS:
            (made,) = made.args
        return str(made.payload) if made.op is Op.REF else None

    def build(self, schema: Schema, errors: Errors) -> Operator:
        columns, output = self._resolved(schema)
        names: dict[str, object] = {"T": output.record_type}
        sources = [record_source(column, schema, names) for column in columns]
        process = compile_loop(errors.operation, [f"append(T({', '.join(sources)}))"], names, errors)
        kernels = [vectorise(column, schema) for column in columns]

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            return BatchResult(pa.RecordBatch.from_arrays([kernel(batch) for kernel in kernels], schema=output.arrow))

        return Operator(process, schema=schema, output=output, vectorised=vectorised)

    def describe(self) -> str:
        return ", ".join(map(str, self.columns))


@dataclass(frozen=True)
class Split(Operation):
    """Send each record to the port of the first condition that is true, else to the port ``rest``."""

    branches: tuple[tuple[str, Column], ...]
    kind = "split"

    def bind(self, schema: Schema) -> Schema:
        if not self.branches:
            raise InvalidOption(option="branches", given={}, allowed="at least one named condition")
        for name, condition in self.branches:
            if name in _TAKEN:
                raise InvalidOption(option="branch name", given=name, allowed=f"any name but {', '.join(_TAKEN)}")
            _check_condition(condition, schema)
        return schema

    def column_of(self, column: str, schema: Schema) -> str:
        del schema
        return column

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        return {**{name: schema for name, _ in self.branches}, REST: schema}

    @property
    def required_ports(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.branches)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        ports = list(self.side_ports(schema))
        names: dict[str, object] = {}
        body, word = [], "if"
        for i, (_, condition) in enumerate(self.branches):
            body.append(f"{word} {predicate_source(condition, schema, names)}: port{i}.append(r)")
            word = "elif"
        body.append(f"else: port{len(self.branches)}.append(r)")
        before = [f"port{i} = []" for i in range(len(ports))]
        held = ", ".join(f"({name!r}, port{i})" for i, name in enumerate(ports))
        sides = f"{{name: held for name, held in ({held},) if held}} or None"
        process = compile_loop(errors.operation, body, names, errors, before=before, sides=sides)
        masks = [(name, vectorise(condition, schema)) for name, condition in self.branches]

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            left = pa.array(np.ones(batch.num_rows, dtype=np.bool_))
            chosen = {}
            for name, mask in masks:
                true = pc.fill_null(mask(batch), False)
                chosen[name] = pc.and_(left, true)
                left = pc.and_not(left, true)
            chosen[REST] = left
            held = {name: schema.to_rows(batch.filter(mask)) for name, mask in chosen.items()}
            return BatchResult(batch.slice(0, 0), {name: rows for name, rows in held.items() if rows} or None)

        return Operator(process, schema=schema, output=schema, vectorised=vectorised)

    def describe(self) -> str:
        return ", ".join(f"{name}: {condition}" for name, condition in self.branches)
