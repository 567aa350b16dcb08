"""What built-in expressions cost beside loops and kernels written by hand: ``python benchmarks/functions.py``.

Each line compares the record form with a hand-written loop over the same records, and the batch form with the Arrow twin where
there is one. No built-in should cost more than twice its twin.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from asking import parser
from penstock import functions as F
from penstock.expr import Column
from penstock.operators import Errors, Project
from penstock.types import Schema

ROWS = 20_000
SCHEMA = Schema.parse("i int, d double, s string, t timestamp, ns array<int>")
DAY_US = 86_400_000_000


def records() -> list[Any]:
    """Records to compute on."""
    return [
        SCHEMA.record_type(
            i % 1000, i / 7, f"Some Text {i % 97}", 1_700_000_000_000_000 + i * 1_000_003, [i, i + 1, i + 2]
        )
        for i in range(ROWS)
    ]


def _split(batch: pa.RecordBatch) -> Any:
    return pc.split_pattern(batch["s"], pattern=" ")


CASES: dict[str, tuple[Column, Callable[[Any], Any], Callable[[pa.RecordBatch], Any] | None]] = {
    "i + 1": (F.col("i") + 1, lambda r: None if r.i is None else r.i + 1, lambda b: pc.add_checked(b["i"], 1)),
    "d * 2 > 5": (
        F.col("d") * 2 > 5.0,
        lambda r: None if r.d is None else r.d * 2 > 5,
        lambda b: pc.greater(pc.multiply(b["d"], 2.0), 5.0),
    ),
    "upper(s)": (F.upper("s"), lambda r: None if r.s is None else r.s.upper(), lambda b: pc.utf8_upper(b["s"])),
    "length(s)": (F.length("s"), lambda r: None if r.s is None else len(r.s), lambda b: pc.utf8_length(b["s"])),
    "concat": (
        F.concat("s", F.lit("!")),
        lambda r: None if r.s is None else r.s + "!",
        lambda b: pc.binary_join_element_wise(b["s"], "!", ""),
    ),
    "year(t)": (F.year("t"), lambda r: None if r.t is None else _year(r.t), lambda b: pc.year(b["t"])),
    "hour(t)": (F.hour("t"), lambda r: None if r.t is None else r.t // 3_600_000_000 % 24, lambda b: pc.hour(b["t"])),
    "date_trunc": (
        F.date_trunc("hour", "t"),
        lambda r: None if r.t is None else r.t - r.t % 3_600_000_000,
        lambda b: pc.floor_temporal(b["t"], unit="hour"),
    ),
    "size(ns)": (F.size("ns"), lambda r: None if r.ns is None else len(r.ns), lambda b: pc.list_value_length(b["ns"])),
    "split(s)": (F.split("s", " "), lambda r: None if r.s is None else r.s.split(" "), _split),
    "transform": (
        F.transform("ns", lambda x: x + 1),
        lambda r: None if r.ns is None else [None if x is None else x + 1 for x in r.ns],
        lambda b: pa.ListArray.from_arrays(b["ns"].offsets, pc.add_checked(b["ns"].flatten(), 1)),
    ),
    "round(d, 2)": (F.round("d", 2), lambda r: None if r.d is None else _half_up(r.d), None),
}


def _year(time_us: int) -> int:
    from datetime import date

    return date.fromordinal(719163 + time_us // DAY_US).year


def _half_up(value: float) -> float:
    from decimal import ROUND_HALF_UP, Decimal

    return float(Decimal(repr(value)).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP))


def best_ns(*functions: Callable[[], object], times: int = 9) -> list[float]:
    """Nanoseconds per record, of the best run of each; they take turns, so that what disturbs one disturbs all."""
    best = [float("inf")] * len(functions)
    for _ in range(times):
        for i, function in enumerate(functions):
            start = perf_counter()
            function()
            best[i] = min(best[i], perf_counter() - start)
    return [seconds / ROWS * 1e9 for seconds in best]


def _by_hand(make: Callable[[Any], Any], output: Callable[..., Any], rows: list[Any]) -> list[Any]:
    return [output(make(r)) for r in rows]


def main() -> None:
    """Measure, print a table, and write the figures as JSON where a path is given."""
    asked = parser(__doc__)
    asked.add_argument("json", nargs="?", type=Path, metavar="PATH", help="where the figures are written as JSON")
    path = asked.parse_args().json
    rows = records()
    batch = SCHEMA.to_batch(rows)
    figures = {}
    for name, (column, by_hand, by_arrow) in CASES.items():
        operation = Project((column.alias("v"),))
        operator = operation.build(SCHEMA, Errors("bench"))
        output = operation.bind(SCHEMA).record_type
        record, hand = best_ns(partial(operator.process, rows), partial(_by_hand, by_hand, output, rows))
        twins = [partial(by_arrow, batch)] if by_arrow else []
        whole, *rest = best_ns(partial(operator.process_batch, batch), *twins)
        arrow = rest[0] if rest else None
        figures[name] = {"record_ns": record, "loop_ns": hand, "batch_ns": whole, "arrow_ns": arrow}
        twin = f"{whole:8.1f} {arrow:8.1f} {whole / arrow:6.2f}" if arrow else f"{whole:8.1f}"
        sys.stdout.write(f"{name:12} {record:8.1f} {hand:8.1f} {record / hand:6.2f}   {twin}\n")
    if path is not None:
        with path.open("w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
