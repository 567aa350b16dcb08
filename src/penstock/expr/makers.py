"""How the functions that users call are made of the rows of the table; `penstock.functions` shows them.

They live here because there their names hide Python's own: ``len``, ``filter``, ``map`` …
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from penstock.durations import parse_us
from penstock.errors import InvalidOption, TypeMismatch, nearest
from penstock.expr import aggregation, generating
from penstock.expr.column import Column, Interval, Op, call, col, lit
from penstock.expr.column import coalesce as _coalesce
from penstock.expr.table import FUNCTIONS, Function
from penstock.types import DataType, Schema

SPECIAL = ["coalesce", "col", "column", "expr", "from_json", "lit", "make_interval", "struct", "when"]
_UNFIT = {
    **dict.fromkeys(
        ("rand", "randn", "random", "uuid", "shuffle", "monotonically_increasing_id"),
        "it gives another value each time, and results could not be repeated after a failure. Draw it at the source.",
    ),
    **dict.fromkeys(
        ("current_timestamp", "now", "current_date", "localtimestamp", "curdate"),
        "results would depend on when they are computed. Use a time column of the records.",
    ),
    **dict.fromkeys(
        ("udf", "pandas_udf", "udtf", "arrow_udf"),
        "functions of yours are verbs. Use stream.map(…), with a batch form where you have one.",
    ),
    **dict.fromkeys(
        ("row_number", "rank", "dense_rank", "lag", "lead", "ntile", "percent_rank", "cume_dist", "nth_value"),
        "a stream has no end to sort up to. Use stream.key_by(…).process(…), which sees a key's records in order.",
    ),
}


def column(name: str) -> Column:
    """Refer to the column ``name``."""
    return col(name)


def coalesce(*columns: object) -> Column:
    """Return the first value that is not null; texts name columns."""
    return _coalesce(*map(_column, columns))


def struct(*columns: object) -> Column:
    """Make a struct of columns; its members have their names."""
    if len(columns) == 1 and isinstance(columns[0], list | tuple):
        columns = tuple(columns[0])
    args: list[Column] = []
    for place, given in enumerate(columns, 1):
        made = _column(given)
        named = made.op in (Op.REF, Op.ALIAS)
        name = str(made.payload).rpartition(".")[2].strip("`") if named else f"col{place}"
        args += [lit(name), made.args[0] if made.op is Op.ALIAS else made]
    return Column(Op.CALL, tuple(args), "named_struct")


def from_json(column: object, schema: object, options: dict[str, str] | None = None) -> Column:
    """Read JSON text by a schema: DDL, or anything that `Schema.parse` takes; what does not fit is null."""
    if options:
        raise InvalidOption(option="options", given=options, allowed="none: only the defaults are there")
    if isinstance(schema, DataType):
        ddl = schema.ddl
    else:
        ddl = schema if isinstance(schema, str) else Schema.parse(schema).ddl
    return call("from_json", _column(column), ddl)


def make_interval(
    years: int = 0, months: int = 0, weeks: int = 0, days: int = 0, hours: int = 0, mins: int = 0, secs: float = 0
) -> Column:
    """Make an interval of plain numbers, to be added to a time."""
    if any(isinstance(each, Column) for each in (years, months, weeks, days, hours, mins, secs)):
        raise TypeMismatch(what="make_interval takes plain numbers.", hint="Use F.timestamp_add for columns.")
    minutes = ((weeks * 7 + days) * 24 + hours) * 60 + mins
    return lit(Interval(years * 12 + months, minutes * 60_000_000 + round(secs * 1_000_000)))


def interval(duration: str | float) -> Column:
    """A span to be added to times: ``ps.interval("10m")``, ``ps.interval("1 hour")``."""
    return lit(Interval(0, parse_us(duration, option="duration", allow_zero=True)))


def _column(given: object) -> Column:
    return col(given) if isinstance(given, str) else lit(given)


def _lambda(function: object, name: str) -> Column:
    if not callable(function):
        raise TypeMismatch(what=f"{name} takes a function, such as lambda x: x + 1, not {function!r}.")
    names = tuple(inspect.signature(function).parameters)
    if not names:
        raise TypeMismatch(what=f"the function of {name} takes no variable.")
    made = function(*[Column(Op.VARIABLE, (), each) for each in names])
    return Column(Op.LAMBDA, (lit(made),), names)


def _maker(row: Function) -> Callable[..., Column]:
    parameters = row.parameters

    def function(*args: Any) -> Column:
        if parameters and parameters[0].repeated and len(args) == 1 and isinstance(args[0], list | tuple):
            args = tuple(args[0])
        made = []
        for place, arg in enumerate(args):
            parameter = parameters[min(place, len(parameters) - 1)] if parameters else None
            if parameter is not None and parameter.is_function:
                made.append(_lambda(arg, row.name))
            else:
                made.append(_column(arg) if parameter is None or parameter.is_column else lit(arg))
        return call(row.name, *made)

    wanted = ", ".join(f"{p.kind}{'…' if p.repeated else ' (optional)' if p.optional else ''}" for p in parameters)
    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = f"Spark's ``{row.name}`` ({row.group}); takes {wanted or 'nothing'}."
    return function


def made() -> dict[str, Callable[..., Column]]:
    """A function for every name of the table that is not made by hand."""
    hidden = {"if", "div", *SPECIAL}
    windows: dict[str, Callable[..., Column]] = {"window": aggregation.window}
    windows["session_window"] = aggregation.session_window
    return {**aggregation.FUNCTIONS, **generating.FUNCTIONS, **windows} | {
        name: _maker(row) for name, row in FUNCTIONS.items() if not name.startswith("_") and name not in hidden
    }


def missing(name: str, there: list[str]) -> AttributeError:
    """The error for a name that is not there."""
    why = _UNFIT.get(name)
    if why is not None:
        return AttributeError(f"penstock.functions has no '{name}': {why}")
    return AttributeError(f"penstock.functions has no '{name}'.{nearest(name, there)} docs/functions.md has the list.")
