"""The Arrow form of expressions: checked kernels over a record batch; batch operators call it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr import functions
from penstock.expr.casts import Datum, convert, loop
from penstock.expr.column import COMPARISONS, Column, Op
from penstock.expr.infer import Typed, common_number, elaborate
from penstock.expr.regex import to_re2
from penstock.types import BOOLEAN, DOUBLE, STRING, DataType, Schema, TypeKind

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
_UNKNOWN = pa.scalar(None, pa.bool_())


class _Compiler:
    """Turns typed nodes into closures over a batch."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def kernel(self, node: Typed) -> Kernel:
        """Compile a node."""
        op = node.op
        if op is Op.REF:
            index = self._schema.names.index(cast(str, node.payload))
            return lambda batch: batch.column(index)
        if op is Op.LITERAL:
            constant = pa.scalar(node.payload, node.type.arrow)
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
            return self._binary(op, self._as(node.args[0], kind), self._as(node.args[1], kind))
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
        if kind == DOUBLE:
            members = [float(cast(float, member)) for member in members]
            if 0.0 in members:
                # Arrow looks values up by their bits, and a double's zero comes in two forms.
                members += [0.0, -0.0]
        value_set = pa.array(members, kind.arrow)
        operand = self._as(value, kind)

        def is_in(batch: pa.RecordBatch) -> Datum:
            given = operand(batch)
            found = pc.is_in(given, value_set=value_set)
            return pc.if_else(pc.is_valid(given), found, _UNKNOWN) if value.nullable else found

        return is_in

    def _modulo(self, node: Typed) -> Kernel:
        left, right = (self._as(arg, node.type) for arg in node.args)
        if node.type == DOUBLE:
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
        return lambda text: pc.ascii_lower(text) if _is_ascii(text) else loop(str.lower, text, STRING)
    if op is Op.UPPER:
        return lambda text: pc.ascii_upper(text) if _is_ascii(text) else loop(str.upper, text, STRING)
    if op is Op.TRIM:
        return lambda text: pc.ascii_trim(text, characters=" ")
    if op is Op.SUBSTR:
        start, length = cast(tuple[int, int], payload)
        return lambda text: pc.utf8_slice_codeunits(text, start - 1, start - 1 + length)
    if op is Op.SPLIT:
        return lambda text: pc.split_pattern(text, pattern=payload)
    return cast(Callable[[Datum], Datum], _LENGTHS[node.args[0].type.kind])


_LENGTHS = {
    TypeKind.STRING: pc.utf8_length,
    TypeKind.BINARY: pc.binary_length,
    TypeKind.ARRAY: pc.list_value_length,
}


def _is_ascii(text: Datum) -> bool:
    # Outside of ASCII, Arrow's letter cases are not Python's: one letter may become several.
    return pc.all(pc.string_is_ascii(text)).as_py() is not False


def _regex(pattern: str) -> Callable[[Datum], Datum]:
    translated = to_re2(pattern)
    if translated is not None:
        return lambda text: pc.match_substring_regex(text, pattern=translated)
    search = re.compile(pattern, re.ASCII).search
    return lambda text: loop(lambda value: search(value) is not None, text, BOOLEAN)


def _float_remainder(dividend: pa.Array, divisor: pa.Array) -> pa.Array:
    """Remainder by NumPy, which has C's fmod as Python does; Arrow has no kernel for it in all versions."""
    present = pc.and_(pc.is_valid(dividend), pc.is_valid(divisor))
    if pc.any(pc.and_(present, pc.equal(divisor, 0.0))).as_py():
        functions.zero_divisor()
    with np.errstate(invalid="ignore"):
        rest = np.fmod(dividend.to_numpy(zero_copy_only=False), divisor.to_numpy(zero_copy_only=False))
    return pa.array(rest, mask=pc.invert(present).to_numpy(zero_copy_only=False))
