"""Functions of columns under the names of `pyspark.sql.functions`: ``from penstock import functions as F``.

A bare text names a column where PySpark reads it so (``F.upper("city")``), and is a constant where PySpark takes one
(``F.split("words", " ")``). What is missing is refused with the nearest name. docs/functions.md has the list.
"""

from __future__ import annotations

from collections.abc import Callable as _Callable
from typing import Any as _Any

from penstock.expr import makers as _makers
from penstock.expr.column import col, lit, when
from penstock.expr.makers import coalesce, column, from_json, make_interval, struct
from penstock.expr.text import expr

__all__ = ["coalesce", "col", "column", "expr", "from_json", "lit", "make_interval", "struct", "when"]
_THERE = [*_makers.SPECIAL, *_makers.made()]
globals().update(_makers.made())


def __dir__() -> list[str]:
    return _THERE


def __getattr__(name: str) -> _Callable[..., _Any]:
    raise _makers.missing(name, _THERE)
