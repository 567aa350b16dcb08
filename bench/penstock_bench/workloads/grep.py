"""Grep: the few lines that hold a rare word."""

from __future__ import annotations

from collections.abc import Iterable

import penstock as ps
from penstock.types import Record
from penstock_bench.workloads.base import Workload, by_number
from penstock_bench.workloads.text import SENTENCE_WORDS, VOCABULARY

NEEDLE = "penstock"


def _build(lines: ps.Stream) -> ps.Stream:
    # Anchored, so that both Python's and Arrow's engine decide in one pass over the line.
    return lines.filter(ps.col("line").rlike(f"^(.* )?{NEEDLE}( .*)?$"))


def expected(records: Iterable[Record]) -> dict[int, str]:
    """Find the matching lines by their number."""
    return {record.number: record.line for record in records if NEEDLE in record.line.split(" ")}


GREP = Workload(
    name="grep",
    title="lines that hold a word that is in 1 % of them",
    fields={
        "number": ps.fields.sequence(),
        # One of a thousand words, in lines of ten.
        "line": ps.fields.words([NEEDLE, *VOCABULARY[1:]], SENTENCE_WORDS),
    },
    format="columns",
    build=_build,
    expected=expected,
    compare=by_number("line"),
    yields=1 - (1 - 1 / len(VOCABULARY)) ** SENTENCE_WORDS,
    columns=("number", "line"),
    line=lambda record: b"%d\t%b" % (record.number, record.line.encode()),
    program=lambda: {"needle": NEEDLE},
)
