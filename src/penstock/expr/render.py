"""Expressions as SQL text, for plans that people read and for error messages."""

from __future__ import annotations

from datetime import date, datetime
from typing import cast

from penstock.expr.column import ARITHMETIC, COMPARISONS, Column, Op
from penstock.types import DataType

_TIGHTNESS = {
    Op.OR: 1,
    Op.AND: 2,
    Op.NOT: 3,
    **dict.fromkeys((*COMPARISONS, Op.IS_NULL, Op.IS_IN, Op.BETWEEN, Op.RLIKE), 4),
    Op.ADD: 5,
    Op.SUB: 5,
    Op.MUL: 6,
    Op.DIV: 6,
    Op.MOD: 6,
    Op.NEG: 7,
}
_ATOM = 8


def render(column: Column) -> str:
    """Write an expression as SQL, such as ``event_type = 'view'``."""
    op, args, payload = column.op, column.args, column.payload
    tightness = _TIGHTNESS.get(op, _ATOM)
    if op is Op.REF:
        return str(payload)
    if op is Op.LITERAL:
        return _literal(payload)
    if op is Op.ALIAS:
        return f"{render(args[0])} AS {payload}"
    if op in COMPARISONS:
        return f"{_inner(args[0], tightness + 1)} {op.value} {_inner(args[1], tightness + 1)}"
    if op in ARITHMETIC or op in (Op.AND, Op.OR):
        return f"{_inner(args[0], tightness)} {op.value} {_inner(args[1], tightness + 1)}"
    if op is Op.NOT and args[0].op is Op.IS_NULL:
        return f"{_inner(args[0].args[0], _TIGHTNESS[Op.IS_NULL] + 1)} IS NOT NULL"
    if op is Op.NOT:
        return f"NOT {_inner(args[0], tightness)}"
    if op is Op.NEG:
        return f"-{_inner(args[0], tightness + 1)}"
    if op is Op.IS_NULL:
        return f"{_inner(args[0], tightness + 1)} IS NULL"
    if op is Op.IS_IN:
        return f"{_inner(args[0], tightness + 1)} IN ({', '.join(map(render, args[1:]))})"
    if op is Op.BETWEEN:
        value, low, high = (_inner(arg, tightness + 1) for arg in args)
        return f"{value} BETWEEN {low} AND {high}"
    if op is Op.RLIKE:
        return f"{_inner(args[0], tightness + 1)} RLIKE {_literal(payload)}"
    if op is Op.CAST:
        return f"CAST({render(args[0])} AS {cast(DataType, payload).ddl})"
    if op is Op.CASE:
        return _case(args)
    return f"{op.value}({', '.join([*map(render, args), *_parameters(payload)])})"


def _inner(column: Column, tightness: int) -> str:
    while column.op is Op.ALIAS:
        (column,) = column.args
    text = render(column)
    return text if _TIGHTNESS.get(column.op, _ATOM) >= tightness else f"({text})"


def _case(args: tuple[Column, ...]) -> str:
    texts = [render(arg) for arg in args]
    branches = [f"WHEN {texts[i]} THEN {texts[i + 1]}" for i in range(0, len(texts) - 1, 2)]
    if len(texts) % 2:
        branches.append(f"ELSE {texts[-1]}")
    return f"CASE {' '.join(branches)} END"


def _parameters(payload: object) -> list[str]:
    if payload is None:
        return []
    return [_literal(part) for part in (payload if isinstance(payload, tuple) else (payload,))]


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return repr(value)
