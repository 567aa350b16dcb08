"""What every stream is made of: the step that it comes from, a port of it, the schema."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from penstock.errors import PenstockError
from penstock.operators import MAIN, Operation
from penstock.pipeline.graph import Input
from penstock.pipeline.options import read_replicas
from penstock.pipeline.steps import Step, make_step
from penstock.pipeline.streams.hints import missing
from penstock.types import Schema

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
        return [name for name in dir(type(self)) if not name.startswith("_")] + ["schema"]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._from.node.name}: {self.schema.ddl})"

    if not TYPE_CHECKING:  # to which any name would be there

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(self, name, self.__dict__["schema"].names if "schema" in self.__dict__ else ())

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
