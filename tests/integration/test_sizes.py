"""Records of 100 KB on real Spark: over a shuffle, in both forms, with memory that does not grow with them."""

from __future__ import annotations

from collections import Counter

import pytest

import penstock as ps

pytestmark = pytest.mark.spark

TOTAL = 6_000
LENGTH = 100_000


def large(record: object) -> tuple[int, int, str]:
    return record.n % 7, record.n, chr(97 + record.n % 26) * LENGTH


def short(record: object) -> tuple[int, int, str, int]:
    return record.k, record.n, record.text[-1], len(record.text)


@pytest.mark.parametrize("form", ["record", "batch"])
def test_records_of_100_kb_pass_a_shuffle_and_memory_stays_bounded(form: str) -> None:
    sink = ps.memory()
    source = ps.generator({"n": ps.fields.sequence()}, rate=None, total=TOTAL, format="columns", partitions=2)
    texts = ps.stream("numbers", source).map(large, schema="k bigint, n bigint, text string")
    kept = texts.key_by("k").map(short, schema="k bigint, n bigint, last string, length bigint")
    report = ps.run(kept.to(sink), parallelism=2, forms=form, name=f"large-{form}")
    expected = Counter((n % 7, n, chr(97 + n % 26), LENGTH) for n in range(TOTAL))
    assert Counter((row.k, row.n, row.last, row.length) for row in sink.rows) == expected
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)
    # 600 MB have passed. Bounds in records alone would let each worker keep all of it, as rows and as bytes.
    assert max(worker.rss_mb for worker in report.workers) < 600, [worker.rss_mb for worker in report.workers]
