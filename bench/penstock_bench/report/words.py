"""Numbers and names as figures, tables and sentences of the report write them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, TypeVar

from penstock.dashboard.numbers import human
from penstock_bench.meter.rows import ResultRow
from penstock_bench.meter.runner import Spread

T = TypeVar("T")
UNKNOWN = "–"
FORMS = ("record", "adaptive", "batch")
"""In the order in which they are shown."""
FIGURES = {
    "rate": "rate/s",
    "p50_ms": "p50 ms",
    "p90_ms": "p90 ms",
    "p99_ms": "p99 ms",
    "p999_ms": "p99.9 ms",
    "max_ms": "max ms",
    "sustained_eps": "sustained/s",
    "capacity_eps": "carried/s",
    "throughput_eps": "out/s",
    "cpu_cores": "cores",
    "memory_mb": "MB",
}
"""Figures of a row that tables show, with the heads of their columns."""


def number(value: float | None) -> str:
    """Write a number in about three digits: 0.045, 1.25, 12.3, 450, 1.5M."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size >= 1000 or size == 0:
        text = human(value)
        return text if "." not in text else text[:-1].rstrip("0").rstrip(".") + text[-1]
    if size >= 100:
        return f"{value:.0f}"
    digits = 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def ms(value: float | None) -> str:
    """Write milliseconds: as `number` does, but thousands in full."""
    return number(value) if value is None or abs(value) < 1000 else f"{value:,.0f}"


def figures(*without: str) -> dict[str, str]:
    """The figures that a table shows, with their heads."""
    return {name: head for name, head in FIGURES.items() if name not in without}


def spread(values: Iterable[float | None], write: Callable[[float | None], str] = number) -> str:
    """Write repetitions as their median, with the least and the largest."""
    found = Spread.of(values)
    if found is None or found.low == found.high:
        return write(None if found is None else found.median)
    return f"{write(found.median)} [{write(found.low)} … {write(found.high)}]"


def faults(row: ResultRow) -> str:
    """Say what is not exact in an output; empty where nothing is."""
    return ", ".join(f"{name} {count:,}" for name, count in row.faults.items())


def label(row: ResultRow) -> str:
    """Name what was measured: the form of ours, unless it has variants of another kind; the engine of others."""
    if row.engine == "penstock" and (not row.variant or row.variant in FORMS):
        return row.form
    return f"{row.engine}:{row.variant}" if row.variant else row.engine


def in_order(labels: Iterable[str]) -> list[str]:
    """Put forms first, in their order, then engines by name; each once."""
    known = dict.fromkeys(labels)
    return [each for each in FORMS if each in known] + sorted(each for each in known if each not in FORMS)


def grouped(rows: Iterable[T], *by: str | Callable[[T], Any]) -> dict[Any, list[T]]:
    """Rows or other things by some of their fields, or by what these functions say of them; in their order."""
    found: dict[Any, list[T]] = {}
    keys: list[Callable[[T], Any]] = [attrgetter(each) if isinstance(each, str) else each for each in by]
    for row in rows:
        found.setdefault(keys[0](row) if len(keys) == 1 else tuple(key(row) for key in keys), []).append(row)
    return found


def by_label(rows: Iterable[ResultRow]) -> dict[str, list[ResultRow]]:
    """Rows by their labels, forms first."""
    found = grouped(rows, label)
    return {key: found[key] for key in in_order(found)}


def ratio(value: float | None, base: float | None) -> str:
    """Write how many times one is of the other."""
    return UNKNOWN if not value or not base else f"{number(value / base)}x"
