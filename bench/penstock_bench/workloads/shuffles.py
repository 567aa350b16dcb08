"""Shuffles: records that move by another key six times in a row, so that what is measured is moving them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import penstock as ps
from penstock_bench.workloads.base import Comparison, Row, Workload
from penstock_bench.workloads.identity import compare, expected

KEYS = [f"key{i}" for i in range(6)]


def _moved(records: ps.Stream) -> ps.Stream:
    for key in KEYS:
        records = records.key_by(key).filter(ps.col(key) >= 0)
    return records.select("number")


def _compared(exact: Mapping[int, None], rows: Iterable[Row], partitions: int) -> Comparison:
    """Compare numbers; records of different keys have no order."""
    del partitions
    return compare(exact, rows, max(exact, default=0) + 1)


SHUFFLES = Workload(
    name="shuffles",
    title="numbered records, moved by key six times",
    fields={"number": ps.fields.sequence(), **{key: ps.fields.integers(0, 999) for key in KEYS}},
    format="columns",
    build=_moved,
    expected=expected,
    compare=_compared,
)
