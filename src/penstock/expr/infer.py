"""Types of expressions: checks a tree against a schema and makes the typed tree that both compilers read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import cast

from penstock.errors import BadRecord, TypeMismatch
from penstock.expr.column import ARITHMETIC, COMPARISONS, Column, Op
from penstock.expr.functions import (
    CONVERSIONS,
    INT64_MAX,
    INT64_MIN,
    date_days,
    date_to_timestamp,
    datetime_us,
    text_to_date,
    text_to_timestamp,
)
from penstock.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
    Field,
    Schema,
    TypeKind,
    array_of,
)


@dataclass(frozen=True, slots=True)
class Typed:
    """A node whose type is known; literals hold the value as records hold it."""

    op: Op
    type: DataType
    nullable: bool
    args: tuple[Typed, ...] = ()
    payload: object = None


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


def common_number(left: DataType, right: DataType) -> DataType:
    """Return the type in which two numbers meet."""
    if left == right:
        return left
    return BIGINT if left.is_integer and right.is_integer else DOUBLE


def _name(column: Column) -> str:
    if column.op in (Op.REF, Op.ALIAS):
        return str(column.payload)
    return _name(column.args[0]) if column.op is Op.CAST else str(column)


def _elaborate(column: Column, schema: Schema) -> Typed | None:
    """Return the typed tree; None stands for the null literal, whose type its surroundings give."""
    if column.op is Op.REF:
        field = schema.field(str(column.payload))
        return Typed(Op.REF, field.type, field.nullable, (), field.name)
    if column.op is Op.LITERAL:
        return _literal(column.payload)
    args = [_elaborate(arg, schema) for arg in column.args]
    if column.op is Op.ALIAS:
        return args[0]
    if column.op is Op.CAST:
        return _cast(column, args[0])
    if column.op is Op.COALESCE:
        return _coalesce(column, args)
    if column.op is Op.CASE:
        return _case(column, args)
    known = [arg for arg in args if arg is not None]
    if len(known) < len(args):
        raise TypeMismatch(
            what=f"{column} has None as an operand and so is always null.",
            hint="Use is_null() or is_not_null() to test for nulls.",
        )
    return _RULES[column.op](column, known)


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
    if literal.type.is_integer and target == DOUBLE:
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
    left = _fit(left, right.type) or left
    right = _fit(right, left.type) or right
    _check_comparable(column, left.type, right.type)
    return (_as_double(left), _as_double(right)) if DOUBLE in (left.type, right.type) else (left, right)


def _as_double(arg: Typed) -> Typed:
    """A number that meets a double is one, as in Spark: beyond 2**53 that is not the same as comparing them exactly."""
    return Typed(Op.CAST, DOUBLE, arg.nullable, (arg,)) if arg.type == BIGINT else arg


def _check_comparable(column: Column, left: DataType, right: DataType) -> None:
    if (left.is_numeric and right.is_numeric) or (left == right and left.kind is not TypeKind.ARRAY):
        return
    raise TypeMismatch(
        what=f"{column} compares {left.ddl} with {right.ddl}.",
        hint="" if left.kind is TypeKind.ARRAY else "Convert one of them with cast().",
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
    _need(column, _is_numeric, "numbers", args)
    kind = DOUBLE if column.op is Op.DIV or any(arg.type == DOUBLE for arg in args) else BIGINT
    args = [_fit(arg, kind) or arg for arg in args]
    return _strict(column, kind, [_as_double(arg) for arg in args] if column.op is Op.DIV else args)


def _sign(column: Column, args: list[Typed]) -> Typed:
    _need(column, _is_numeric, "a number", args)
    return _strict(column, common_number(args[0].type, BIGINT), args)


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
    return _strict(column, BOOLEAN, [value, *fitted])


def _between(column: Column, args: list[Typed]) -> Typed:
    value, low, high = args
    (low_value, low), (high_value, high) = _meet(column, value, low), _meet(column, value, high)
    if low_value == high_value and not low.nullable and not high.nullable:
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


def _length(column: Column, args: list[Typed]) -> Typed:
    sized = (TypeKind.STRING, TypeKind.BINARY, TypeKind.ARRAY)
    _need(column, lambda kind: kind.kind in sized, "string, binary or an array", args)
    return _strict(column, INT, args)


def _cast(column: Column, arg: Typed | None) -> Typed:
    target = cast(DataType, column.payload)
    if arg is None:
        return Typed(Op.LITERAL, target, True)
    if arg.type == target:
        return arg
    if not convertible(arg.type, target):
        raise TypeMismatch(what=f"{column.args[0]} is {arg.type.ddl}, which cannot become {target.ddl}.")
    return Typed(Op.CAST, target, arg.nullable, (arg,))


def wide(kind: DataType) -> DataType:
    """Return BIGINT for all whole-number types, any other type unchanged."""
    return BIGINT if kind.is_integer else kind


def convertible(source: DataType, target: DataType) -> bool:
    """Whether a cast is defined."""
    source, target = wide(source), wide(target)
    return source == target or (source.kind, target.kind) in CONVERSIONS


def _unify(column: Column, args: list[Typed | None]) -> tuple[DataType, list[Typed]]:
    """Give the alternatives of a choice one type."""
    known = [arg for arg in args if arg is not None]
    if not known:
        raise TypeMismatch(what=f"{column} is always null.", hint='Give a type: ps.lit(None).cast("string").')
    # Constants follow the columns, so that coalesce(small_column, 0) stays as small as the column.
    target = min(known, key=lambda arg: arg.op is Op.LITERAL).type
    for arg in known:
        if arg.type != target and _fit(arg, target) is None:
            if not (arg.type.is_numeric and target.is_numeric):
                raise TypeMismatch(
                    what=f"{column} has alternatives of type {target.ddl} and {arg.type.ddl}.",
                    hint="Convert them to one type with cast().",
                )
            target = common_number(arg.type, target)
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
    Op.LENGTH: _length,
}
