"""What every stream is made of: the step that it comes from, a port of it, the schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.errors import PenstockError, TypeMismatch
from penstock.expr import Column, col
from penstock.expr.column import Op
from penstock.expr.infer import path_of
from penstock.operators import MAIN, Operation
from penstock.pipeline.graph import Input
from penstock.pipeline.options import read_replicas
from penstock.pipeline.steps import Step, make_step
from penstock.pipeline.streams.hints import missing
from penstock.types import Schema, quoted

if TYPE_CHECKING:
    from penstock.pipeline.streams.stream import Stream


class Builder:
    """The ground that the verbs of a stream stand on; users see `Stream`."""

    def __init__(self, step: Step, port: str, schema: Schema, keys: tuple[str, ...] = ()) -> None:
        self._from = step
        self._port = port
        self._keys = keys
        self.schema = schema

    def __dir__(self) -> list[str]:
        columns = [name for name in self.schema.names if name.isidentifier() and not name.startswith("_")]
        return [name for name in dir(type(self)) if not name.startswith("_")] + ["schema", *columns]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._from.node.name}: {self.schema.ddl})"

    if not TYPE_CHECKING:  # to which any name would be there

        def __getattr__(self, name: str) -> Column:
            if name in (self.__dict__["schema"].names if "schema" in self.__dict__ else ()):
                return col(quoted(name))
            raise missing(self, name)

    def __getitem__(self, key: str | Column | Sequence[str | Column]) -> Any:
        """``stream["price"]`` is a column; ``stream[condition]`` filters, ``stream[["a", "b"]]`` selects."""
        if isinstance(key, str):
            self.schema.field(key)
            return col(quoted(key))
        if isinstance(key, Column):
            return self._unkeyed.filter(key)
        if isinstance(key, list | tuple):
            return self._unkeyed.select(*key)
        raise TypeMismatch(what=f"{key!r} is not the name of a column.", hint="The first records: take(n).")

    def __iter__(self) -> NoReturn:
        raise TypeMismatch(what="a stream has no end to iterate up to.", hint="The first records: take(n).")

    @property
    def _edge(self) -> tuple[Step, Input]:
        return self._from, Input(self._from.node.name, self._port, self._keys)

    @property
    def _unkeyed(self) -> Stream:
        return self._stream(self._from, self._port, self.schema)

    @staticmethod
    def _stream(step: Step, port: str, schema: Schema, keys: tuple[str, ...] = ()) -> Stream:
        from penstock.pipeline.streams.stream import Stream  # which is made of the verbs, which are made of this

        return Stream(step, port, schema, keys)

    def _then(
        self,
        operation: Operation,
        name: str | None,
        on_error: str = "fail",
        replicas: int | tuple[int, int] | None = None,
    ) -> Stream:
        step = make_step(operation, (self._edge,), name, operation.kind, on_error)
        if replicas is not None:
            step = replace(step, node=replace(step.node, replicas=read_replicas(replicas, step.node.name)))
        try:
            return self._stream(step, MAIN, operation.bind(self.schema))
        except PenstockError as error:
            raise error.at(step.node.name) from None

    def _renamed(self, label: str) -> Stream:
        step = replace(self._from, node=replace(self._from.node, name=label))
        return self._stream(step, self._port, self.schema, self._keys)


def plain_names(columns: Sequence[Any]) -> tuple[str, ...]:
    """Names of columns, given one by one or as a list, each as a text or as ``ps.col(…)``."""
    if len(columns) == 1 and isinstance(columns[0], list | tuple):
        columns = columns[0]
    return tuple(
        path_of(str(each.payload))[0] if isinstance(each, Column) and each.op is Op.REF else each for each in columns
    )


def declared_time(step: Step, schema: Schema) -> str | None:
    """The column that `with_watermark` has declared last on the way to a step, if it is still there."""
    while True:
        declared = step.node.operation.declared_time if step.node.operation is not None else None
        if declared is not None and declared[0] in schema:
            return declared[0]
        if len(step.inputs) != 1:
            return None
        (step,) = step.inputs
