"""The Arrow form of expressions: checked kernels over a record batch; batch operators call it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr import functions
from penstock.expr.casts import Datum, convert, loop
from penstock.expr.column import ARITHMETIC, COMPARISONS, Column, Op
from penstock.expr.conversions import converter
from penstock.expr.infer import elaborate
from penstock.expr.numbers import NEGATED_DIGITS_MAX, common_number, negated, positive
from penstock.expr.record import typed_function
from penstock.expr.regex import java_pattern, to_re2
from penstock.expr.table import Function
from penstock.expr.typed import Typed
from penstock.types import BOOLEAN, STRING, DataType, Field, Schema, TypeKind, attribute, to_array, to_values

Kernel = Callable[[pa.RecordBatch], Datum]


def vectorise(column: Column, schema: Schema) -> Callable[[pa.RecordBatch], pa.Array]:
    """Compile an expression to a function of a record batch.

    Where it returns, the values are those of ``record_function`` on every row. It raises wherever the
    record form would, and also where a branch not taken would: all branches are computed for all rows.
    The caller then goes through the rows one by one.

    Parameters
    ----------
    column : Column
        The expression.
    schema : Schema
        Of the batches.
    """
    kernel = _Compiler(schema).kernel(elaborate(column, schema))

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        return _spread(kernel(batch), batch.num_rows)

    return evaluate


def _spread(datum: Datum, rows: int) -> pa.Array:
    return pa.repeat(datum, rows) if isinstance(datum, pa.Scalar) else datum


_COMPARE = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}
_BINARY = {
    **_COMPARE,
    Op.ADD: pc.add_checked,
    Op.SUB: pc.subtract_checked,
    Op.MUL: pc.multiply_checked,
    Op.DIV: pc.divide_checked,
    Op.AND: pc.and_kleene,
    Op.OR: pc.or_kleene,
}
_UNKNOWN = pa.nulls(1, pa.bool_())[0]  # not a scalar: to make one from Python, Arrow imports pandas


class _Compiler:
    """Turns typed nodes into closures over a batch."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def kernel(self, node: Typed) -> Kernel:
        """Compile a node."""
        op = node.op
        if op is Op.VARIABLE or any(arg.op is Op.LAMBDA for arg in node.args):
            return self._over_elements(node) or self._by_rows(node)
        if op is Op.CALL:
            return self._call(node)
        if node.type.kind is TypeKind.DECIMAL and op in ARITHMETIC:
            return self._columns_loop(node, functions.decimal_operation(op.value, node.type), strict=True)
        if op in (Op.NEG, Op.ABS) and node.type.precision > NEGATED_DIGITS_MAX:
            return self._columns_loop(node, negated if op is Op.NEG else positive, strict=True)
        if op is Op.TRY_CAST:
            attempt = functions.attempt(converter(node.args[0].type, node.type))
            return self._columns_loop(node, attempt, strict=True)
        if op is Op.EQ_NULL_SAFE:
            return self._equal_or_null(node)
        if op is Op.FIELD:
            return self._field(node)
        if op is Op.REF:
            index = self._schema.names.index(cast(str, node.payload))
            return lambda batch: batch.column(index)
        if op is Op.LITERAL:
            constant = to_array([node.payload], node.type)[0]
            return lambda _batch: constant
        if op is Op.IS_IN:
            return self._is_in(node)
        if op is Op.MOD:
            return self._modulo(node)
        if op is Op.BETWEEN:
            value, low, high = node.args
            return self._binary(
                Op.AND,
                self.kernel(Typed(Op.GE, BOOLEAN, value.nullable, (value, low))),
                self.kernel(Typed(Op.LE, BOOLEAN, value.nullable, (value, high))),
            )
        if op in _BINARY:
            kind = node.type
            if op in COMPARISONS:
                kind = node.args[0].type
                kind = common_number(kind, node.args[1].type) if kind.is_numeric else kind
            left, right = self._as(node.args[0], kind), self._as(node.args[1], kind)
            if op in COMPARISONS and kind.is_fractional:
                return lambda batch: _compare_fractions(op, left(batch), right(batch))
            return self._binary(op, left, right)
        if op is Op.CAST:
            return self._as(node.args[0], node.type)
        if op in (Op.NEG, Op.ABS):
            sign = pc.negate_checked if op is Op.NEG else pc.abs_checked
            operand = self._as(node.args[0], node.type)
            return lambda batch: sign(operand(batch))
        if op is Op.CASE:
            return self._case(node)
        if op is Op.COALESCE:
            choices = [self.kernel(arg) for arg in node.args]
            return lambda batch: pc.coalesce(*[choice(batch) for choice in choices])
        function = _unary(node)
        argument = self.kernel(node.args[0])
        return lambda batch: function(argument(batch))

    def _as(self, node: Typed, kind: DataType) -> Kernel:
        """Compile a node, converted to ``kind``."""
        kernel = self.kernel(node)
        if node.type == kind:
            return kernel
        conversion = convert(node.type, kind)
        return lambda batch: conversion(kernel(batch))

    def _call(self, node: Typed) -> Kernel:
        function = cast(Function, node.payload)
        loop_form = self._columns_loop(node, None, strict=function.strict)
        if function.kernel is None:
            return loop_form
        kernel, args = function.kernel, [self.kernel(arg) for arg in node.args]

        def run(batch: pa.RecordBatch) -> Datum:
            made = kernel(*[arg(batch) for arg in args])
            return loop_form(batch) if made is None else made

        return run

    def _columns_loop(self, node: Typed, function: Callable[..., Any] | None, *, strict: bool) -> Kernel:
        """The record form of one node over columns that are computed as such."""
        made = function or _function(node)
        kernels = [None if arg.is_literal else self.kernel(arg) for arg in node.args]
        kinds = [arg.type for arg in node.args]
        constants = [arg.payload for arg in node.args]

        def run(batch: pa.RecordBatch) -> Datum:
            rows = batch.num_rows
            columns = [
                repeat(constant, rows) if kernel is None else to_values(_spread(kernel(batch), rows), kind)
                for kernel, kind, constant in zip(kernels, kinds, constants, strict=True)
            ]
            if not columns:
                return to_array([made() for _ in range(rows)], node.type)
            if strict and len(columns) == 1:
                return to_array([None if value is None else made(value) for value in columns[0]], node.type)
            if strict:
                return to_array([None if None in v else made(*v) for v in _tuples(columns)], node.type)
            return to_array([made(*values) for values in zip(*columns, strict=True)], node.type)

        return run

    def _over_elements(self, node: Typed) -> Kernel | None:
        """``transform`` with a function of the element alone: its kernel over the elements of all rows at once."""
        if _called(node) != "transform" or len(cast(tuple[str, ...], node.args[1].payload)) != 1:
            return None
        array, function = node.args
        (body,), (name,) = function.args, cast(tuple[str, ...], function.payload)
        element = array.type.element
        if element is None or _references(body) or array.type.key is not None:
            return None
        elements = Schema((Field(name, element),))
        argument, kernel = self.kernel(array), _Compiler(elements).kernel(_column_for(body, name))

        def run(batch: pa.RecordBatch) -> Datum:
            lists = _spread(argument(batch), batch.num_rows)
            values = lists.flatten()
            made = _spread(kernel(pa.RecordBatch.from_arrays([values], schema=elements.arrow)), len(values))
            lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
            ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            mask = lists.is_null() if lists.null_count else None
            return pa.ListArray.from_arrays(pa.array(ends), made, type=node.type.arrow, mask=mask)

        return run

    def _by_rows(self, node: Typed) -> Kernel:
        """The record form over rows: for functions of variables."""
        names = _references(node)
        places = [self._schema.names.index(name) for name in names]
        part = Schema(tuple(self._schema.field(name) for name in names)) if names else None
        function = typed_function(node)

        def run(batch: pa.RecordBatch) -> Datum:
            rows = part.to_rows(batch.select(places)) if part else [None] * batch.num_rows
            return to_array([function(row) for row in rows], node.type)

        return run

    def _equal_or_null(self, node: Typed) -> Kernel:
        left, right = node.args
        kind = left.type
        kind = common_number(kind, right.type) if kind.is_numeric else kind
        first, second = self._as(left, kind), self._as(right, kind)

        def run(batch: pa.RecordBatch) -> Datum:
            a, b = first(batch), second(batch)
            equal = _compare_fractions(Op.EQ, a, b) if kind.is_fractional else pc.equal(a, b)
            return pc.or_(pc.fill_null(equal, False), pc.and_(pc.is_null(a), pc.is_null(b)))

        return run

    def _field(self, node: Typed) -> Kernel:
        base = node.args[0]
        if base.type.kind is not TypeKind.STRUCT:
            name = attribute(cast(str, node.payload))
            return self._columns_loop(
                node, lambda items: [None if item is None else getattr(item, name) for item in items], strict=True
            )
        at = [field.name for field in base.type.fields].index(cast(str, node.payload))
        argument = self.kernel(base)
        return lambda batch: pc.struct_field(argument(batch), [at])

    @staticmethod
    def _binary(op: Op, left: Kernel, right: Kernel) -> Kernel:
        function = _BINARY[op]
        return lambda batch: function(left(batch), right(batch))

    def _is_in(self, node: Typed) -> Kernel:
        value, *literals = node.args
        kind = value.type
        if kind.is_numeric:
            for literal in literals:
                kind = common_number(kind, literal.type)
        members = [literal.payload for literal in literals if literal.payload == literal.payload]
        has_nan = len(members) < len(literals)
        if kind.is_fractional:
            members = [float(cast(float, member)) for member in members]
            if 0.0 in members:
                # Arrow looks values up by their bits, and a double's zero comes in two forms.
                members += [0.0, -0.0]
        value_set = to_array(members, kind)
        operand = self._as(value, kind)

        def is_in(batch: pa.RecordBatch) -> Datum:
            given = operand(batch)
            found = pc.is_in(given, value_set=value_set)
            if has_nan:
                found = pc.or_(found, pc.fill_null(pc.is_nan(given), False))
            return pc.if_else(pc.is_valid(given), found, _UNKNOWN) if value.nullable else found

        return is_in

    def _modulo(self, node: Typed) -> Kernel:
        left, right = (self._as(arg, node.type) for arg in node.args)
        if node.type.is_fractional:
            return lambda batch: _float_remainder(*(_spread(side(batch), batch.num_rows) for side in (left, right)))

        def remainder(batch: pa.RecordBatch) -> Datum:
            dividend, divisor = left(batch), right(batch)
            whole = pc.multiply(pc.divide_checked(dividend, divisor), divisor)
            return pc.subtract(dividend, whole)

        return remainder

    def _case(self, node: Typed) -> Kernel:
        conditions = [self.kernel(arg) for arg in node.args[:-1:2]]
        values = [self.kernel(arg) for arg in (*node.args[1:-1:2], node.args[-1])]

        def choose(batch: pa.RecordBatch) -> Datum:
            tests = pc.make_struct(*[condition(batch) for condition in conditions])
            return pc.case_when(tests, *[value(batch) for value in values])

        return choose


def _unary(node: Typed) -> Callable[[Datum], Datum]:
    """Kernel of an operator on one column."""
    op, payload = node.op, node.payload
    if op is Op.NOT:
        return cast(Callable[[Datum], Datum], pc.invert)
    if op is Op.IS_NULL:
        return cast(Callable[[Datum], Datum], pc.is_null)
    if op is Op.CONTAINS:
        return lambda text: pc.match_substring(text, pattern=payload)
    if op is Op.STARTS_WITH:
        return lambda text: pc.starts_with(text, pattern=payload)
    if op is Op.ENDS_WITH:
        return lambda text: pc.ends_with(text, pattern=payload)
    if op is Op.RLIKE:
        return _regex(cast(str, payload))
    if op is Op.LOWER:
        return lambda text: pc.ascii_lower(text) if _is_ascii(text) else loop(str.lower, text, STRING, STRING)
    if op is Op.UPPER:
        return lambda text: pc.ascii_upper(text) if _is_ascii(text) else loop(str.upper, text, STRING, STRING)
    if op is Op.TRIM:
        return lambda text: pc.ascii_trim(text, characters=" ")
    if op is Op.SUBSTR:
        start, length = cast(tuple[int, int], payload)
        return lambda text: pc.utf8_slice_codeunits(text, start - 1, start - 1 + length)
    if op is not Op.SPLIT:
        raise NotImplementedError(op)
    return lambda text: pc.split_pattern(text, pattern=payload)


def _function(node: Typed) -> Callable[..., Any]:
    """The record form of a call as a Python function of its arguments."""
    function = cast(Function, node.payload)
    if function.source is None:
        return function.helper_of(node)
    names = [f"a{i}" for i in range(len(node.args))]
    scope: dict[str, Any] = {}
    source = f"def call({', '.join(names)}): return {function.source.format(*names)}"
    exec(compile(source, f"<penstock {function.name}>", "exec"), scope)
    made: Callable[..., Any] = scope["call"]
    return made


def _called(node: Typed) -> str:
    """The name of the function that a node calls; empty where it calls none."""
    return node.payload.name if isinstance(node.payload, Function) else ""


def _column_for(node: Typed, name: str) -> Typed:
    """A function's body with its variable as a column; in a function within it, one of that name is another one."""
    if node.op is Op.VARIABLE and node.payload == name:
        return replace(node, op=Op.REF)
    if node.op is Op.LAMBDA and name in cast(tuple[str, ...], node.payload):
        return node
    return replace(node, args=tuple(_column_for(arg, name) for arg in node.args))


def _references(node: Typed) -> list[str]:
    found = [cast(str, node.payload)] if node.op is Op.REF else []
    return list(dict.fromkeys([*found, *(name for arg in node.args for name in _references(arg))]))


def _tuples(columns: Sequence[Iterable[Any]]) -> Iterable[tuple[Any, ...]]:
    return zip(*columns, strict=True)


def _compare_fractions(op: Op, left: Datum, right: Datum) -> Datum:
    """Compare floating-point numbers: NaN equals itself and is larger than any other number."""
    found = _COMPARE[op](left, right)
    a, b = pc.is_nan(left), pc.is_nan(right)
    if not (pc.any(a).as_py() if isinstance(a, pa.Array) else a.as_py()) and not (
        pc.any(b).as_py() if isinstance(b, pa.Array) else b.as_py()
    ):
        return found
    if op is Op.EQ:
        return pc.or_(found, pc.and_(a, b))
    if op is Op.NE:
        return pc.and_(found, pc.invert(pc.and_(a, b)))
    if op is Op.LT:
        return pc.or_(found, pc.and_not(b, a))
    if op is Op.GT:
        return pc.or_(found, pc.and_not(a, b))
    return pc.or_(found, b if op is Op.LE else a)


def _is_ascii(text: Datum) -> bool:
    # Outside of ASCII, Arrow's letter cases are not Python's: one letter may become several.
    return pc.all(pc.string_is_ascii(text)).as_py() is not False


def _regex(pattern: str) -> Callable[[Datum], Datum]:
    translated = to_re2(pattern)
    if translated is not None:
        return lambda text: pc.match_substring_regex(text, pattern=translated)
    search = java_pattern(pattern).search
    return lambda text: loop(lambda value: search(value) is not None, text, STRING, BOOLEAN)


def _float_remainder(dividend: pa.Array, divisor: pa.Array) -> pa.Array:
    """Remainder by NumPy, which has C's fmod as Python does; Arrow has no kernel for it in all versions."""
    present = pc.and_(pc.is_valid(dividend), pc.is_valid(divisor))
    if pc.any(pc.and_(present, pc.equal(divisor, 0.0))).as_py():
        functions.zero_divisor()
    with np.errstate(invalid="ignore"):
        rest = np.fmod(dividend.to_numpy(zero_copy_only=False), divisor.to_numpy(zero_copy_only=False))
    return pa.array(rest, dividend.type, mask=pc.invert(present).to_numpy(zero_copy_only=False))
