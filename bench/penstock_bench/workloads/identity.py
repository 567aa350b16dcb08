"""Identity: records of one column straight into the sink, so that what is measured is the engine itself."""

from __future__ import annotations

from collections.abc import Iterable

import penstock as ps
from penstock.types import Record
from penstock_bench.workloads.base import Workload, by_number


def expected(records: Iterable[Record]) -> dict[int, None]:
    """Number the records."""
    return {record.number: None for record in records}


compare = by_number(None)
IDENTITY = Workload(
    name="identity",
    title="numbered records, unchanged",
    fields={"number": ps.fields.sequence()},
    format="columns",
    build=lambda records: records,
    expected=expected,
    compare=compare,
)
