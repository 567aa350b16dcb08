"""Identity: records of one column straight into the sink, so that what is measured is the engine itself."""

from __future__ import annotations

from collections.abc import Iterable

import penstock as ps
from penstock.types import Record
from penstock_bench.workloads.base import Comparison, Row, Workload, compare_rows


def expected(records: Iterable[Record]) -> dict[int, None]:
    """Number the records."""
    return {record.number: None for record in records}


def compare(exact: dict[int, None], rows: Iterable[Row], partitions: int) -> Comparison:
    """Compare records by their number, which is all there is to them."""
    return compare_rows(exact, ((row["number"], None) for row in rows), partitions)


IDENTITY = Workload(
    name="identity",
    title="numbered records, unchanged",
    fields={"number": ps.fields.sequence()},
    format="columns",
    build=lambda records: records,
    expected=expected,
    compare=compare,
)
