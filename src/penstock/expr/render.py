"""Expressions as SQL text, for plans that people read and for error messages."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import cast

from penstock.expr.aggregation import AggregateCall, Gap
from penstock.expr.column import ARITHMETIC, COMPARISONS, Column, Interval, Op
from penstock.expr.generating import Generator
from penstock.expr.infer import path_of
from penstock.expr.table import find
from penstock.types import DataType, quoted

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
    Op.EQ_NULL_SAFE: 4,
}
_ATOM = 8


def render(column: Column) -> str:
    """Write an expression as SQL, such as ``event_type = 'view'``."""
    op, args, payload = column.op, column.args, column.payload
    tightness = _TIGHTNESS.get(op, _ATOM)
    if op is Op.REF:
        return ".".join(map(_name, path_of(str(payload))))
    if op is Op.VARIABLE:
        return str(payload)
    if op is Op.LAMBDA:
        names = cast(tuple[str, ...], payload)
        return f"{names[0] if len(names) == 1 else '(' + ', '.join(names) + ')'} -> {render(args[0])}"
    if op is Op.CALL:
        return _call(str(payload), args)
    if op is Op.AGGREGATE:
        return cast(AggregateCall, payload).render([render(arg) for arg in args])
    if op is Op.GENERATE:
        return f"{cast(Generator, payload).name}({render(args[0])})"
    if op is Op.WINDOW and isinstance(payload, Gap):
        return f"session_window({render(args[0])}, {_literal(payload.duration)})"
    if op is Op.WINDOW:
        return f"window({', '.join([render(args[0]), *map(_literal, cast(tuple[str, ...], payload))])})"
    if op is Op.LITERAL:
        return _literal(payload)
    if op is Op.ALIAS and isinstance(payload, tuple):
        return f"{render(args[0])} AS ({', '.join(map(_name, payload))})"
    if op is Op.ALIAS:
        return f"{render(args[0])} AS {_name(str(payload))}"
    if op in COMPARISONS or op is Op.EQ_NULL_SAFE:
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
    if op is Op.SPLIT:
        return f"split({render(args[0])}, {_literal(chr(92) + 'Q' + str(payload) + chr(92) + 'E')})"
    if op in (Op.CAST, Op.TRY_CAST):
        return f"{op.value}({render(args[0])} AS {cast(DataType, payload).ddl})"
    if op is Op.CASE:
        return _case(args)
    return f"{op.value}({', '.join([*map(render, args), *_parameters(payload)])})"


def _name(name: str) -> str:
    return quoted(name) if name.upper() not in _KEYWORDS else f"`{name}`"


_KEYWORDS = frozenset(
    "ALL AND ANY AS BETWEEN BY CASE CAST CROSS DATE DISTINCT ELSE END EXISTS FALSE FROM FULL GROUP HAVING IN INNER "
    "INTERVAL INTO IS JOIN LATERAL LEFT LIKE NATURAL NOT NULL ON OR ORDER OUTER RIGHT RLIKE SELECT SEMI SOME TABLE "
    "THEN TIMESTAMP TRUE UNION UNIQUE USING WHEN WHERE WITH".split()
)
_TRIMS = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_OPERATORS = {"div": "div", "bitwiseAND": "&", "bitwiseOR": "|", "bitwiseXOR": "^"}


def _call(name: str, args: tuple[Column, ...]) -> str:
    if name == "getItem":
        return f"{_inner(args[0], _ATOM)}[{render(args[1])}]"
    if name in _OPERATORS:
        return f"({_inner(args[0], _ATOM)} {_OPERATORS[name]} {_inner(args[1], _ATOM)})"
    if name in _TRIMS and len(args) == 2:
        return f"trim({_TRIMS[name]} {render(args[1])} FROM {render(args[0])})"
    if name in ("timestamp_add", "timestamp_diff"):
        rest = ", ".join(map(render, args[1:]))
        return f"{find(name).sql_name}({args[0].payload}, {rest})"
    if name in ("like", "ilike") and len(args) == 2:
        return f"({_inner(args[0], _ATOM)} {name.upper()} {_inner(args[1], _ATOM)})"
    if name == "from_json" and len(args) == 2 and isinstance(args[1].payload, str):
        return f"from_json({render(args[0])}, {_literal(args[1].payload)})"
    return f"{find(name).sql_name}({', '.join(map(render, args))})"


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
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, Interval):
        months = f"INTERVAL '{value.months}' MONTH" if value.months else ""
        rest = f"INTERVAL '{value.us / 1_000_000:f}' SECOND" if value.us or not months else ""
        return " + ".join(part for part in (months, rest) if part)
    if isinstance(value, float):
        return f"{value!r}D" if isfinite(value) else f"double('{value!r}')"
    if isinstance(value, int) and not -(1 << 31) <= value < 1 << 31:
        return f"{value}L"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return repr(value)
