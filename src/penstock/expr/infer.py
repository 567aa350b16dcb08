"""Types of expressions: checks a tree against a schema and makes the typed tree that both compilers read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import cast

from penstock.errors import BadRecord, TypeMismatch, UnknownColumn
from penstock.expr.calls import Variables, elaborate_call
from penstock.expr.column import ARITHMETIC, COMPARISONS, Column, Interval, Op
from penstock.expr.conversions import convertible, may_be_null
from penstock.expr.functions import (
    DAY_US,
    INT64_MAX,
    INT64_MIN,
    date_days,
    date_to_timestamp,
    datetime_us,
    text_to_date,
    text_to_timestamp,
)
from penstock.expr.numbers import arithmetic_type, as_decimal, common_number
from penstock.expr.table import Function, find
from penstock.expr.typed import Typed
from penstock.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    DataType,
    Field,
    Schema,
    TypeKind,
    array_of,
    decimal_of,
)


def infer(column: Column, schema: Schema) -> Field:
    """Return the name, type and nullability of an expression over records of ``schema``.

    Raises
    ------
    UnknownColumn
        If the expression names a column that the schema does not have.
    TypeMismatch
        If an operator does not take what it is given.
    """
    typed = elaborate(column, schema)
    return Field(_name(column), typed.type, typed.nullable)


def elaborate_condition(column: Column, schema: Schema) -> Typed:
    """Check an expression that must be a condition and return its typed tree."""
    typed = elaborate(column, schema)
    if typed.type != BOOLEAN:
        raise TypeMismatch(what=f"{column} is {typed.type.ddl}, not a condition.", hint="Compare it with something.")
    return typed


def elaborate(column: Column, schema: Schema) -> Typed:
    """Check an expression and return its typed tree."""
    typed = _elaborate(column, schema)
    if typed is None:
        raise TypeMismatch(what="None alone has no type.", hint='Give it one: ps.lit(None).cast("string").')
    return typed


def _name(column: Column) -> str:
    if column.op is Op.ALIAS:
        return str(column.payload)
    if column.op is Op.REF:
        return path_of(str(column.payload))[-1]
    return _name(column.args[0]) if column.op in (Op.CAST, Op.TRY_CAST) else str(column)


def path_of(name: str) -> list[str]:
    """The parts of a name: ``a.b`` has two, and what stands in backticks is one."""
    return [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in _PART.findall(name)] or [name]


_PART = re.compile(r"`(?:[^`]|``)+`|[^.]+")


def _reference(name: str, schema: Schema) -> Typed:
    if name in schema:
        field = schema.field(name)
        return Typed(Op.REF, field.type, field.nullable, (), field.name)
    first, *rest = path_of(name)
    if first not in schema and not rest:
        first = name
    field = schema.field(first)
    node = Typed(Op.REF, field.type, field.nullable, (), field.name)
    for part in rest:
        node = member(node, part)
    return node


def member(node: Typed, name: str) -> Typed:
    """The member of a struct, or of each struct of an array."""
    kind = node.type.element if node.type.kind is TypeKind.ARRAY and node.type.element else node.type
    if kind.kind is not TypeKind.STRUCT:
        raise TypeMismatch(what=f"{node.type.ddl} has no member '{name}'.", hint="Only structs have members.")
    for field in kind.fields:
        if field.name == name:
            if kind is node.type:
                return Typed(Op.FIELD, field.type, node.nullable or field.nullable, (node,), name)
            return Typed(Op.FIELD, array_of(field.type), node.nullable, (node,), name)
    raise UnknownColumn(column=name, available=tuple(field.name for field in kind.fields))


def _elaborate(column: Column, schema: Schema, variables: Variables | None = None) -> Typed | None:
    """Return the typed tree; None stands for the null literal, whose type its surroundings give."""
    op = column.op
    if op is Op.REF:
        return _reference(str(column.payload), schema)
    if op is Op.VARIABLE:
        found = (variables or {}).get(str(column.payload))
        if found is None:
            raise TypeMismatch(what=f"the variable {column} is used outside of its function.")
        return Typed(Op.VARIABLE, found, True, (), column.payload)
    if op is Op.LITERAL:
        return _literal(column.payload)
    if op is Op.AGGREGATE:
        raise TypeMismatch(
            what=f"{column} is an aggregate, which needs a group.", hint='Use it in group_by("k").agg(…).'
        )
    if op is Op.WINDOW:
        raise TypeMismatch(
            what=f"{column} makes groups.", hint='Use it in group_by("k", F.window("at", "10 seconds")).'
        )
    if op is Op.GENERATE:
        raise TypeMismatch(
            what=f"{column} makes several records of one.",
            hint="Use it as a column by itself: select(…), with_columns(…).",
        )
    if op is Op.CALL:
        return elaborate_call(
            column, lambda arg, more=None: _elaborate(arg, schema, {**(variables or {}), **(more or {})})
        )
    args = [_elaborate(arg, schema, variables) for arg in column.args]
    if op is Op.ALIAS:
        return args[0]
    if op in (Op.CAST, Op.TRY_CAST):
        return _cast(column, args[0])
    if op is Op.COALESCE:
        return _coalesce(column, args)
    if op is Op.CASE:
        return _case(column, args)
    if op is Op.EQ_NULL_SAFE:
        return _equal_or_null(column, args)
    known = [arg for arg in args if arg is not None]
    if len(known) < len(args):
        raise TypeMismatch(
            what=f"{column} has None as an operand and so is always null.",
            hint="Use is_null() or is_not_null() to test for nulls.",
        )
    return _RULES[op](column, known)


def _literal(value: object) -> Typed | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return Typed(Op.LITERAL, BOOLEAN, False, (), value)
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise TypeMismatch(what=f"{value} does not fit into 64 bits.")
        low, high = INT.bounds()
        return Typed(Op.LITERAL, INT if low <= value <= high else BIGINT, False, (), value)
    if isinstance(value, float):
        return Typed(Op.LITERAL, DOUBLE, False, (), value)
    if isinstance(value, str):
        return Typed(Op.LITERAL, STRING, False, (), value)
    if isinstance(value, bytes):
        return Typed(Op.LITERAL, BINARY, False, (), value)
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = max(-int(exponent), 0)
        return Typed(
            Op.LITERAL, decimal_of(max(len(digits) + max(int(exponent), 0), scale, 1), scale), False, (), value
        )
    if isinstance(value, Interval):
        return Typed(Op.LITERAL, INTERVAL, False, (), value)
    if isinstance(value, datetime):
        return Typed(Op.LITERAL, TIMESTAMP, False, (), datetime_us(value))
    return Typed(Op.LITERAL, DATE, False, (), date_days(cast(date, value)))


def _fit(literal: Typed, target: DataType) -> Typed | None:
    """Turn a literal into one of the target type where that is what it plainly means, else return None."""
    value = literal.payload
    if literal.op is not Op.LITERAL:
        return None
    if literal.type == target:
        return literal
    if value is None:
        return None
    if literal.type.is_integer and target.is_integer:
        low, high = target.bounds()
        return replace(literal, type=target) if low <= cast(int, value) <= high else None
    if literal.type.is_integer and target.is_fractional:
        return replace(literal, type=target, payload=float(cast(int, value)))
    if literal.type == DATE and target == TIMESTAMP:
        return replace(literal, type=target, payload=date_to_timestamp(cast(int, value)))
    if literal.type == STRING and target in (TIMESTAMP, DATE):
        read = text_to_timestamp if target == TIMESTAMP else text_to_date
        try:
            return replace(literal, type=target, payload=read(cast(str, value)))
        except BadRecord as error:
            raise TypeMismatch(what=error.what, hint="Write it as 2030-01-31 or 2030-01-31T12:00:00Z.") from None
    return None


def _meet(column: Column, left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Bring the operands of a comparison together, or raise TypeMismatch."""
    if not (left.type.is_numeric and right.type.is_numeric):
        left = _fit(left, right.type) or left
        right = _fit(right, left.type) or right
        if {left.type, right.type} == {DATE, TIMESTAMP}:
            left, right = _become(left, TIMESTAMP), _become(right, TIMESTAMP)
    _check_comparable(column, left.type, right.type)
    if left.type != right.type and TypeKind.DECIMAL in (left.type.kind, right.type.kind):
        kind = common_number(left.type, right.type)
        return _become(left, kind), _become(right, kind)
    return left, right


def _check_comparable(column: Column, left: DataType, right: DataType) -> None:
    if (left.is_numeric and right.is_numeric) or (left == right and not left.is_nested):
        return
    raise TypeMismatch(
        what=f"{column} compares {left.ddl} with {right.ddl}.",
        hint="" if left.is_nested else "Convert one of them with cast().",
    )


def _strict(column: Column, kind: DataType, args: list[Typed]) -> Typed:
    """Make a node that is null exactly where one of its operands is."""
    return Typed(column.op, kind, any(arg.nullable for arg in args), tuple(args), column.payload)


def _need(column: Column, fits: Callable[[DataType], bool], wanted: str, args: list[Typed]) -> None:
    for source, arg in zip(column.args, args, strict=True):
        if not fits(arg.type):
            raise TypeMismatch(what=f"{column} needs {wanted}, but {source} is {arg.type.ddl}.")


def _is_numeric(kind: DataType) -> bool:
    return kind.is_numeric


def _comparison(column: Column, args: list[Typed]) -> Typed:
    return _strict(column, BOOLEAN, list(_meet(column, args[0], args[1])))


def _arithmetic(column: Column, args: list[Typed]) -> Typed:
    if any(arg.type in (TIMESTAMP, DATE, INTERVAL) for arg in args):
        return _time_arithmetic(column, args)
    _need(column, _is_numeric, "numbers", args)
    kind = arithmetic_type(column.op, *args)
    if kind.kind is TypeKind.DECIMAL:
        args = [arg if arg.type.kind is TypeKind.DECIMAL else _become(arg, as_decimal(arg)) for arg in args]
        return _strict(column, kind, args)
    # Decimals meet doubles as doubles; whole numbers need no conversion on the way to a double.
    args = [_become(arg, kind) if arg.type.kind is TypeKind.DECIMAL else _fit(arg, kind) or arg for arg in args]
    return _strict(column, kind, args)


def _time_arithmetic(column: Column, args: list[Typed]) -> Typed:
    left, right = args
    if left.type == INTERVAL and column.op is Op.ADD:
        left, right = right, left
    days = right.type.is_integer and left.type == DATE
    if column.op not in (Op.ADD, Op.SUB) or not (days or (right.type == INTERVAL and left.type in (DATE, TIMESTAMP))):
        raise TypeMismatch(
            what=f"{column} is not defined for {left.type.ddl} and {right.type.ddl}.",
            hint='Add an interval: ps.interval("10m"). For differences use F.datediff or F.unix_micros.',
        )
    if days:
        return Typed(Op.CALL, DATE, any(a.nullable for a in args), (left, right), _days(column.op))
    span = right.payload
    if not isinstance(span, Interval):
        raise TypeMismatch(what=f"the interval in {column} is not a constant.")
    sign = 1 if column.op is Op.ADD else -1
    if left.type == DATE and span.us % DAY_US:
        left = _become(left, TIMESTAMP)
    node = left
    if span.months:
        by = Typed(Op.LITERAL, INT, False, (), sign * span.months)
        node = Typed(Op.CALL, left.type, left.nullable, (node, by), find("_plus_months"))
    if span.us and left.type == DATE:
        by = Typed(Op.LITERAL, INT, False, (), sign * span.us // DAY_US)
        return Typed(Op.CALL, DATE, left.nullable, (node, by), find("date_add"))
    if span.us:
        by = Typed(Op.LITERAL, BIGINT, False, (), sign * span.us)
        return Typed(Op.CALL, TIMESTAMP, left.nullable, (node, by), find("_plus_us"))
    return node


def _days(op: Op) -> Function:
    return find("date_add" if op is Op.ADD else "date_sub")


def _equal_or_null(column: Column, args: list[Typed | None]) -> Typed:
    known = [arg for arg in args if arg is not None]
    if len(known) < 2:
        return Typed(Op.IS_NULL, BOOLEAN, False, tuple(known)) if known else cast(Typed, _literal(True))
    return Typed(Op.EQ_NULL_SAFE, BOOLEAN, False, _meet(column, known[0], known[1]))


def _sign(column: Column, args: list[Typed]) -> Typed:
    _need(column, _is_numeric, "a number", args)
    return _strict(column, args[0].type, args)


def _logic(column: Column, args: list[Typed]) -> Typed:
    _need(column, lambda kind: kind == BOOLEAN, "conditions", args)
    return _strict(column, BOOLEAN, args)


def _is_null(column: Column, args: list[Typed]) -> Typed:
    return Typed(column.op, BOOLEAN, False, tuple(args))


def _is_in(column: Column, args: list[Typed]) -> Typed:
    value, *literals = args
    fitted = [_fit(literal, value.type) or literal for literal in literals]
    for literal in fitted:
        _check_comparable(column, value.type, literal.type)
    if value.type.kind is TypeKind.DECIMAL or any(literal.type.kind is TypeKind.DECIMAL for literal in fitted):
        equal = [Column(Op.EQ, (column.args[0], each)) for each in column.args[1:]]
        nodes = [
            _strict(each, BOOLEAN, list(_meet(column, value, lit))) for each, lit in zip(equal, fitted, strict=True)
        ]
        return reduce(lambda a, b: Typed(Op.OR, BOOLEAN, a.nullable or b.nullable, (a, b)), nodes)
    return _strict(column, BOOLEAN, [value, *fitted])


def _between(column: Column, args: list[Typed]) -> Typed:
    value, low, high = args
    (low_value, low), (high_value, high) = _meet(column, value, low), _meet(column, value, high)
    plain = not any(each.type.is_fractional for each in (low_value, low, high))
    if low_value.type.is_fractional and low.is_literal and high.is_literal:
        plain = low.payload == low.payload and high.payload == high.payload  # NaN is larger than any other number
    if low_value == high_value and not low.nullable and not high.nullable and plain:
        return _strict(column, BOOLEAN, [low_value, low, high])
    # One unknown bound does not make the answer unknown where the other bound already says no.
    above = Typed(Op.GE, BOOLEAN, low_value.nullable or low.nullable, (low_value, low))
    below = Typed(Op.LE, BOOLEAN, high_value.nullable or high.nullable, (high_value, high))
    return Typed(Op.AND, BOOLEAN, above.nullable or below.nullable, (above, below))


def _match(column: Column, args: list[Typed]) -> Typed:
    kind = BINARY if isinstance(column.payload, bytes) else STRING
    _need(column, lambda given: given == kind, kind.ddl, args)
    return _strict(column, BOOLEAN, args)


def _text(column: Column, args: list[Typed]) -> Typed:
    _need(column, lambda kind: kind == STRING, "string", args)
    return _strict(column, array_of(STRING) if column.op is Op.SPLIT else STRING, args)


def _cast(column: Column, arg: Typed | None) -> Typed:
    target = cast(DataType, column.payload)
    if arg is None:
        return Typed(Op.LITERAL, target, True)
    if arg.type == target:
        return arg
    if not convertible(arg.type, target):
        raise TypeMismatch(what=f"{column.args[0]} is {arg.type.ddl}, which cannot become {target.ddl}.")
    lossy = column.op is Op.TRY_CAST or may_be_null(arg.type, target)
    return Typed(column.op, target, arg.nullable or lossy, (arg,))


def _unify(column: Column, args: list[Typed | None]) -> tuple[DataType, list[Typed]]:
    """Give the alternatives of a choice one type."""
    known = [arg for arg in args if arg is not None]
    if not known:
        raise TypeMismatch(what=f"{column} is always null.", hint='Give a type: ps.lit(None).cast("string").')
    target = known[0].type
    for arg in known[1:]:
        if arg.type == target or (_fit(arg, target) is not None and not arg.type.is_numeric):
            continue
        if arg.type.is_numeric and target.is_numeric:
            target = common_number(arg.type, target)
        elif {arg.type, target} == {DATE, TIMESTAMP}:
            target = TIMESTAMP
        else:
            raise TypeMismatch(
                what=f"{column} has alternatives of type {target.ddl} and {arg.type.ddl}.",
                hint="Convert them to one type with cast().",
            )
    return target, [_become(arg, target) for arg in args]


def _become(arg: Typed | None, target: DataType) -> Typed:
    if arg is None:
        return Typed(Op.LITERAL, target, True)
    if arg.type == target:
        return arg
    return _fit(arg, target) or Typed(Op.CAST, target, arg.nullable, (arg,))


def _coalesce(column: Column, args: list[Typed | None]) -> Typed:
    target, values = _unify(column, args)
    return Typed(Op.COALESCE, target, all(value.nullable for value in values), tuple(values))


def _case(column: Column, args: list[Typed | None]) -> Typed:
    if len(args) % 2 == 0:
        args = [*args, None]
    conditions = args[:-1:2]
    for source, condition in zip(column.args[::2], conditions, strict=False):
        if condition is None or condition.type != BOOLEAN:
            raise TypeMismatch(what=f"{source} is not a condition.")
    target, values = _unify(column, [*args[1:-1:2], args[-1]])
    nodes = [node for pair in zip(cast(list[Typed], conditions), values, strict=False) for node in pair]
    return Typed(Op.CASE, target, any(value.nullable for value in values), (*nodes, values[-1]))


_RULES: dict[Op, Callable[[Column, list[Typed]], Typed]] = {
    **dict.fromkeys(COMPARISONS, _comparison),
    **dict.fromkeys(ARITHMETIC, _arithmetic),
    **dict.fromkeys((Op.NEG, Op.ABS), _sign),
    **dict.fromkeys((Op.AND, Op.OR, Op.NOT), _logic),
    **dict.fromkeys((Op.CONTAINS, Op.STARTS_WITH, Op.ENDS_WITH, Op.RLIKE), _match),
    **dict.fromkeys((Op.LOWER, Op.UPPER, Op.TRIM, Op.SUBSTR, Op.SPLIT), _text),
    Op.IS_NULL: _is_null,
    Op.IS_IN: _is_in,
    Op.BETWEEN: _between,
}
