"""Functions that make several records of one: ``F.explode("tags")`` and its like; `select` and SQL carry them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.expr.column import Column, Op, col, lit


@dataclass(frozen=True)
class Generator:
    """Which one: whether places are told too, and whether records without elements stay."""

    name: str
    position: bool = False
    outer: bool = False


def _maker(generator: Generator, told: str) -> Callable[[object], Column]:
    def function(column: object) -> Column:
        return Column(Op.GENERATE, (col(column) if isinstance(column, str) else lit(column),), generator)

    function.__name__ = function.__qualname__ = generator.name
    function.__doc__ = f"{told}, as a column of `select` or `with_columns`."
    return function


_EACH = "Make a record of each element of an array, or of each entry of a map"
_STAYS = "; a record without any stays, with nulls"
FUNCTIONS: dict[str, Callable[[object], Column]] = {
    "explode": _maker(Generator("explode"), _EACH),
    "explode_outer": _maker(Generator("explode_outer", outer=True), f"{_EACH}{_STAYS}"),
    "posexplode": _maker(Generator("posexplode", position=True), f"{_EACH}, with its place"),
    "posexplode_outer": _maker(
        Generator("posexplode_outer", position=True, outer=True), f"{_EACH}, with its place{_STAYS}"
    ),
}


def generator_of(column: Column) -> Column | None:
    """What makes records in a column of a select; None where nothing does."""
    while column.op is Op.ALIAS:
        (column,) = column.args
    return column if column.op is Op.GENERATE else None


def names_of(column: Column, *, is_map: bool) -> tuple[str, ...]:
    """The columns that it makes, as they are named, or as Spark names them."""
    made = generator_of(column)
    assert made is not None
    given = column.payload if column.op is Op.ALIAS else ()
    generator = made.payload
    assert isinstance(generator, Generator)
    if isinstance(given, str):
        given = (given,)
    assert isinstance(given, tuple)
    own = (*(("pos",) if generator.position else ()), *(("key", "value") if is_map else ("col",)))
    return given or own
