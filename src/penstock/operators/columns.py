"""Operations on columns by expressions: filter, select, with_columns, split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidOption, TypeMismatch
from penstock.expr import Column, col, infer, predicate_source, record_source, vectorise
from penstock.operators.base import MAIN, Operation, Operator
from penstock.operators.errors import DEAD_LETTERS, Errors
from penstock.operators.loop import compile_loop
from penstock.types import BOOLEAN, Record, Schema

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

    def build(self, schema: Schema, errors: Errors) -> Operator:
        names: dict[str, object] = {}
        source = predicate_source(self.condition, schema, names)
        process = compile_loop(errors.operation, [f"if {source}: append(r)"], names, errors)
        mask = vectorise(self.condition, schema)
        return Operator(process, schema=schema, output=schema, vectorised=lambda batch: batch.filter(mask(batch)))

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

    def build(self, schema: Schema, errors: Errors) -> Operator:
        columns, output = self._resolved(schema)
        names: dict[str, object] = {"T": output.record_type}
        sources = [record_source(column, schema, names) for column in columns]
        process = compile_loop(errors.operation, [f"append(T({', '.join(sources)}))"], names, errors)
        kernels = [vectorise(column, schema) for column in columns]

        def vectorised(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays([kernel(batch) for kernel in kernels], schema=output.arrow)

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

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        return {**{name: schema for name, _ in self.branches}, REST: schema}

    def build(self, schema: Schema, errors: Errors) -> Operator:
        ports: dict[str, list[Record]] = {name: [] for name in self.side_ports(schema)}
        names: dict[str, object] = {}
        body, word = [], "if"
        for i, (name, condition) in enumerate(self.branches):
            names[f"port{i}"] = ports[name].append
            body.append(f"{word} {predicate_source(condition, schema, names)}: port{i}(r)")
            word = "elif"
        names["rest"] = ports[REST].append
        process = compile_loop(errors.operation, [*body, "else: rest(r)"], names, errors)
        masks = [(name, vectorise(condition, schema)) for name, condition in self.branches]

        def vectorised(batch: pa.RecordBatch) -> pa.RecordBatch:
            left = pa.array(np.ones(batch.num_rows, dtype=np.bool_))
            chosen = {}
            for name, mask in masks:
                true = pc.fill_null(mask(batch), False)
                chosen[name] = pc.and_(left, true)
                left = pc.and_not(left, true)
            chosen[REST] = left
            for name, rows in ports.items():
                rows.extend(schema.to_rows(batch.filter(chosen[name])))
            return batch.slice(0, 0)

        return Operator(process, schema=schema, output=schema, vectorised=vectorised, ports=ports)

    def describe(self) -> str:
        return ", ".join(f"{name}: {condition}" for name, condition in self.branches)
