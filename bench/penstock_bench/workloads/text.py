"""Workloads on text: WordCount, a running count of each word in sentences, and Grep, the few lines with a rare word."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock.types import Record
from penstock_bench.workloads.base import Comparison, Numbers, Row, Workload, by_number, compare_updates

_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "no", "ru", "ti")

VOCABULARY = ["".join(syllables) for syllables in product(_SYLLABLES, repeat=3)]  # a thousand words of six letters
SENTENCE_WORDS = 10
NEEDLE = "penstock"


def matches(records: Iterable[Record]) -> dict[int, str]:
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
    # Anchored, so that both Python's and Arrow's engine decide in one pass over the line.
    build=lambda lines: lines.filter(ps.col("line").rlike(f"^(.* )?{NEEDLE}( .*)?$")),
    expected=matches,
    compare=by_number("line"),
    yields=1 - (1 - 1 / len(VOCABULARY)) ** SENTENCE_WORDS,
    columns=("number", "line"),
    line=lambda record: b"%d\t%b" % (record.number, record.line.encode()),
    program=lambda: {"needle": NEEDLE},
)


@ps.op(schema="word string not null")
def words(sentence: Any) -> list[str]:
    parts: list[str] = sentence.value.split(" ")
    return parts


@words.batch
def _words_batch(sentences: pa.RecordBatch) -> pa.RecordBatch:
    parts = pc.split_pattern(sentences.column("value"), " ")
    return pa.RecordBatch.from_arrays([pc.list_flatten(parts)], names=["word"])


def counts_of(records: Iterable[Record]) -> dict[str, int]:
    return dict(Counter(word for record in records for word in record.value.split(" ")))


def due(records: Iterable[Record], times_us: Numbers) -> dict[tuple[Any, ...], Numbers]:
    """Scheduled times of the sentences that each word is in."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for record, time_us in zip(records, times_us.tolist(), strict=True):
        for word in record.value.split(" "):
            found[word].append(time_us)
    return {(word,): np.array(times, np.int64) for word, times in found.items()}


def _compare(exact: dict[str, int], rows: Iterable[Row], _: int) -> Comparison:
    """Compare the last count of each word; what is lost or duplicated is counted in words, ten to a record."""
    return compare_updates(exact, ((row["word"], row["count"]) for row in rows))


WORDCOUNT = Workload(
    name="wordcount",
    title="running count of each word in sentences of 10 words",
    fields=ps.fields.words(VOCABULARY, SENTENCE_WORDS, zipf=1.0),
    format="text",
    build=lambda sentences: sentences.flat_map(words).key_by("word").count(),
    expected=counts_of,
    compare=_compare,
    yields=SENTENCE_WORDS,
    group=("word",),
    columns=("word", "count"),
    line=lambda record: record.value.encode(),
    due=due,
)
