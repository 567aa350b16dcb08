"""Numbered records, straight into the sink or moved by key six times: what is measured is the engine itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import penstock as ps
from penstock.types import Record
from penstock_bench.workloads.base import Comparison, Row, Workload, by_number

KEYS = [f"key{i}" for i in range(6)]
compare = by_number(None)


def expected(records: Iterable[Record]) -> dict[int, None]:
    return {record.number: None for record in records}


IDENTITY = Workload(
    name="identity",
    title="numbered records, unchanged",
    fields={"number": ps.fields.sequence()},
    format="columns",
    build=lambda records: records,
    expected=expected,
    compare=compare,
)


def _moved(records: ps.Stream) -> ps.Stream:
    for key in KEYS:
        records = records.key_by(key).filter(ps.col(key) >= 0)
    return records.select("number")


def _compared(exact: Mapping[int, None], rows: Iterable[Row], _: int) -> Comparison:
    """Compare numbers; records of different keys have no order."""
    return compare(exact, rows, max(exact, default=0) + 1)


SHUFFLES = replace(
    IDENTITY,
    name="shuffles",
    title="numbered records, moved by key six times",
    fields={"number": ps.fields.sequence(), **{key: ps.fields.integers(0, 999) for key in KEYS}},
    build=_moved,
    compare=_compared,
)
