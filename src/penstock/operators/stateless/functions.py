"""Users' functions as operations: `map` and `flat_map`, and the `@op` decorator that gives a function its two forms."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import BadRecord, TypeMismatch
from penstock.operators.base import BatchForm, BatchKind, BatchResult, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.loop import compile_loop
from penstock.types import Record, Schema
from penstock.types.classes import maker, returned_class, wanted_class

RecordFunction = Callable[[Record], Any]
ColumnsFunction = Callable[[pa.RecordBatch], pa.RecordBatch]


class Function:
    """A user's function with a declared output schema; made by :func:`op`.

    Calling it calls the record form. ``@fn.batch`` adds a vectorised form that takes and returns a
    ``pyarrow.RecordBatch`` and must give the same records. One that is ``pure`` has no effect beside its result.
    """

    def __init__(self, function: RecordFunction, schema: Schema | None, *, pure: bool = False) -> None:
        if not callable(function):
            raise TypeMismatch(what=f"{function!r} is not a function.", hint="Use @ps.op(schema='…') above a def.")
        self.record_form = function
        self.schema = schema
        self.pure = pure
        self.batch_form: ColumnsFunction | None = None
        self.many_form: Callable[[list[Record]], Any] | None = None
        self.__name__ = getattr(function, "__name__", "function")
        self.__doc__ = function.__doc__

    def __call__(self, record: Record) -> Any:
        return self.record_form(record)

    def batch(self, function: ColumnsFunction) -> ColumnsFunction:
        """Declare the vectorised form."""
        self.batch_form = function
        return function

    def many(self, function: Callable[[list[Record]], Any]) -> Callable[[list[Record]], Any]:
        """Declare a form for a list of records, which returns a list of results; for `map_async`."""
        self.many_form = function
        return function


def op(schema: str | Schema, *, pure: bool = False) -> Callable[[RecordFunction], Function]:
    """Declare a function of one record as an operation for `map` or `flat_map`.

    Parameters
    ----------
    schema : str
        Schema of what the function returns, in Spark's DDL.
    pure : bool
        The function has no effect beside its result: nothing is sent, written or counted. It may then be called on
        samples, more often than records arrive, to find out what both of its forms cost before there is a burst.

    Examples
    --------
    >>> @op(schema="word string, length int")
    ... def measure(r):
    ...     return r.word, len(r.word)
    """
    parsed = Schema.parse(schema)
    return lambda function: Function(function, parsed, pure=pure)


def as_function(
    function: Function | RecordFunction,
    schema: str | Schema | None,
    operation: str,
    input: Schema | None = None,
    *,
    flat: bool = False,
) -> Function:
    """Return a user's argument as a Function with a schema, or say what is missing.

    A function whose parameter is annotated with a class of the user's is given instances of it, made of records of
    ``input``; a class that it is annotated to return is its schema where none is given.
    """
    if not isinstance(function, Function):
        function = Function(function, None)
    declared = Schema.parse(schema) if schema is not None else function.schema
    if declared is None and (returned := returned_class(function.record_form, many=flat)) is not None:
        declared = Schema.parse(returned)
    kind = wanted_class(function.record_form) if input is not None else None
    if kind is not None and input is not None:
        try:
            called = _given(function.record_form, maker(kind, input))
        except TypeMismatch as error:
            raise error.at(operation) from None
        typed = Function(called, function.schema, pure=function.pure)
        typed.batch_form, typed.many_form = function.batch_form, function.many_form
        function = typed
    if declared is None:
        raise TypeMismatch(
            what=f"the output of '{function.__name__}' has no schema.",
            hint='Give schema="…" here, or decorate the function with @ps.op(schema="…").',
            operation=operation,
        )
    if declared is not function.schema:
        copy = Function(function.record_form, declared, pure=function.pure)
        copy.batch_form, copy.many_form = function.batch_form, function.many_form
        return copy
    return function


def _given(function: RecordFunction, make: Callable[[Record], Any]) -> RecordFunction:
    """The function with its record made an instance of the class that it wants."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waits(record: Record) -> Any:
            return await function(make(record))

        return waits

    @functools.wraps(function)
    def call(record: Record) -> Any:
        return function(make(record))

    return call


@dataclass(frozen=True)
class Apply(Operation):
    """Call a user's function for each record; ``flat`` when it returns any number of records."""

    function: Function
    flat: bool = False

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "flat_map" if self.flat else "map"

    @property
    def batch_kind(self) -> BatchKind:  # type: ignore[override]
        return BatchKind.VECTORISED if self.function.batch_form else BatchKind.LOOP

    @property
    def is_pure(self) -> bool:  # type: ignore[override]
        return self.function.pure

    def bind(self, schema: Schema) -> Schema:
        del schema
        assert self.function.schema is not None  # as_function has seen to it
        return self.function.schema

    def build(self, schema: Schema, errors: Errors) -> Operator:
        output = self.bind(schema)
        names: dict[str, object] = {"f": self.function.record_form, "coerce": output.coerce}
        body = "out.extend([coerce(v) for v in f(r)])" if self.flat else "append(coerce(f(r)))"
        process = compile_loop(errors.operation, [body], names, errors)
        return Operator(process, schema=schema, output=output, vectorised=self._vectorised(output))

    def _vectorised(self, output: Schema) -> BatchForm | None:
        function, flat = self.function.batch_form, self.flat
        if function is None:
            return None

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            result = function(batch)
            if isinstance(result, pa.Table):
                result = result.combine_chunks().to_batches()[0] if result.num_rows else output.to_batch([])
            if not flat and result.num_rows != batch.num_rows:
                raise TypeMismatch(what=f"the batch form returned {result.num_rows} records for {batch.num_rows}.")
            for field in output.fields:
                if not field.nullable and result.column(field.name).null_count:
                    raise BadRecord(f"column '{field.name}' is null, but it is declared not null.")
            columns = [_typed(result.column(field.name), field.type.arrow) for field in output.fields]
            return BatchResult(pa.RecordBatch.from_arrays(columns, schema=output.arrow))

        return vectorised

    def describe(self) -> str:
        return self.function.__name__


def _typed(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    return column if column.type == data_type else column.cast(data_type)
