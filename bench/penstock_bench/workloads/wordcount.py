"""WordCount: sentences of ten words, a running count of each word."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from penstock.types import Record
from penstock_bench.workloads.base import Comparison, Numbers, Row, Workload, compare_updates
from penstock_bench.workloads.text import SENTENCE_WORDS, VOCABULARY


@ps.op(schema="word string not null")
def words(sentence: Any) -> list[str]:
    """Cut a sentence into words."""
    parts: list[str] = sentence.value.split(" ")
    return parts


@words.batch
def _words_batch(sentences: pa.RecordBatch) -> pa.RecordBatch:
    parts = pc.split_pattern(sentences.column("value"), " ")
    return pa.RecordBatch.from_arrays([pc.list_flatten(parts)], names=["word"])


def _build(sentences: ps.Stream) -> ps.Stream:
    return sentences.flat_map(words).key_by("word").count()


def expected(records: Iterable[Record]) -> dict[str, int]:
    """Count the words."""
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(record.value.split(" "))
    return dict(counts)


def due(records: Iterable[Record], times_us: Numbers) -> dict[tuple[Any, ...], Numbers]:
    """Scheduled times of the sentences that each word is in."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for record, time_us in zip(records, times_us.tolist(), strict=True):
        for word in record.value.split(" "):
            found[word].append(time_us)
    return {(word,): np.array(times, np.int64) for word, times in found.items()}


def compare(exact: dict[str, int], rows: Iterable[Row], partitions: int) -> Comparison:
    """Compare the last count of each word; what is lost or duplicated is counted in words, ten to a record."""
    del partitions
    return compare_updates(exact, ((row["word"], row["count"]) for row in rows))


WORDCOUNT = Workload(
    name="wordcount",
    title="running count of each word in sentences of 10 words",
    fields=ps.fields.words(VOCABULARY, SENTENCE_WORDS, zipf=1.0),
    format="text",
    build=_build,
    expected=expected,
    compare=compare,
    yields=SENTENCE_WORDS,
    group=("word",),
    columns=("word", "count"),
    line=lambda record: record.value.encode(),
    due=due,
)
