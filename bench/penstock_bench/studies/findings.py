"""What studies find, put into checks, tables and curves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Line, Lines, Mark
from penstock_bench.report.words import UNKNOWN

T = TypeVar("T")
Findings = Iterator[Claim | Check]
Table = tuple[str, list[str], list[list[str]]]
"""Title, heads and lines."""
Column = tuple[str, Callable[[Any], str]]
"""The head of a column, and what writes the cell of a line."""


def listed(figures: Iterable[tuple[object, str]]) -> str:
    """Say what each case came to: ``1: 20 ms, 2: 30 ms``."""
    return ", ".join(f"{case}: {told}" for case, told in figures)


class Paired(NamedTuple, Generic[T]):
    """What a study found in a run, and the run's row."""

    found: T
    row: ResultRow


def paired(results: Results, items: Iterable[T], *names: str) -> list[Paired[T]]:
    """Those of the items that have a row which is equal in these settings, with that row."""
    pairs = ((each, results.pick(**{name: getattr(each, name) for name in names})) for each in items)
    return [Paired(each, row) for each, row in pairs if row is not None]


def at(item: Any, path: str) -> Any:
    """What stands at a path in an item: ``row__p50_ms`` is a field of its field ``row``; None where there is none."""
    for name in path.split("__"):
        item = None if item is None else getattr(item, name)
    return item


def curve(
    label: str, key: str, items: Iterable[Any], x: str, y: str, factor: float = 1.0, least: float = -inf, **style: Any
) -> Line:
    """Draw a figure of items against another, by their paths, where it is known; see `at`."""
    points = [(at(each, x), at(each, y)) for each in items]
    known = [(here, max(least, factor * value)) for here, value in points if value is not None]
    return Line.of(label, key, known, **style)


def latency(title: str, moments: Sequence[Any], high: tuple[str, str], marks: Sequence[Mark]) -> Lines:
    """Draw latency over time: the median, and something higher that is given by its name and its field."""
    lines = [
        curve(label, key, moments, "at_s", field, least=0.05, markers=False)
        for (label, field), key in ((high, "out"), (("median", "p50_ms"), "record"))
    ]
    return Lines(title, "seconds", "latency, ms", lines, y_log=True, marks=marks)


def table(title: str, items: Iterable[Any], *columns: Column) -> list[Table]:
    """Make a table with a line for each item; none if there is none."""
    lines = [[write(item) for _, write in columns] for item in items]
    return [(title, [head for head, _ in columns], lines)] if lines else []


def fields(write: Callable[[Any], str], /, **heads: str) -> list[Column]:
    """Columns of what stands at these paths in the items, see `at`; a dash where there is nothing."""

    def column(path: str) -> Callable[[Any], str]:
        return lambda item: UNKNOWN if (found := at(item, path)) is None else write(found)

    return [(head, column(path)) for path, head in heads.items()]


def at_most(name: str, value: float, unit: str, most: float, detail: object = None, **more: Any) -> Check:
    """Hold a figure against what it may be at the most; see `_held`."""
    return _held(Check(name, value, unit, f"at most {_limit(most)}", value <= most), detail, **more)


def at_least(name: str, value: float, unit: str, least: float, detail: object = None, **more: Any) -> Check:
    """Hold a figure against what it has to be at the least; see `_held`."""
    return _held(Check(name, value, unit, f"at least {_limit(least)}", value >= least), detail, **more)


def _limit(limit: float) -> str:
    return f"{limit:,.0f}" if limit >= 1_000 else f"{limit:g}"


def _held(check: Check, detail: object, digits: int = 3, where: str = "", also: bool = True) -> Check:
    """``where`` says for what the limit holds or what else is asked for; ``also``: whether that is met."""
    check.value, check.target = round(check.value, digits), check.target + where
    check.met, check.detail = check.met and also, msgspec.to_builtins(detail or {})
    return check
