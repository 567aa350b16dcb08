"""Iterators as sources: what comes after a crash, for each promise; and what a function can do wrong."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidOption, SourceFailed
from penstock.runtime.job import plan_of
from penstock.testing.cluster import Cluster
from waiting import WAIT_S


def read(reader: Any, count: int) -> list[Any]:
    rows: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(rows) < count:
        assert time.monotonic() < deadline, rows
        batch = reader.poll(time.time_ns() // 1000, min(3, count - len(rows)))
        rows += [row.n for row in batch.rows] if batch is not None else []
    return rows


def ended(reader: Any) -> bool:
    deadline = time.monotonic() + WAIT_S
    while reader.wake_us(1) is not None:
        assert reader.poll(time.time_ns() // 1000, 1) is None
        assert time.monotonic() < deadline
    return True


def numbers() -> Iterator[dict[str, int]]:
    yield from ({"n": n} for n in range(10))


def after(position: int | None) -> Iterator[dict[str, int]]:
    yield from ({"n": n} for n in range(0 if position is None else position // 10 + 1, 10))


async def slowly(part: int) -> AsyncIterator[tuple[int]]:
    for n in range(5):
        await asyncio.sleep(0.001)
        yield (10 * part + n,)


@pytest.mark.parametrize(
    ("options", "later"),
    [
        ({"function": after, "position": lambda row: 10 * row["n"]}, list(range(4, 10))),
        ({"function": numbers, "repeats": True}, list(range(4, 10))),
        ({"function": numbers}, list(range(10))),
    ],
)
def test_what_comes_after_a_crash(options: dict[str, Any], later: list[int]) -> None:
    source = ps.from_iterator(options.pop("function"), schema="n bigint", **options)
    reader = source.reader(0, 1, 0)
    assert read(reader, 4) == [0, 1, 2, 3]
    position = reader.position()
    assert read(reader, 3) == [4, 5, 6]
    reader.close()
    again = source.reader(0, 1, 0)
    again.seek(position)
    assert again.offset == 4
    assert read(again, len(later)) == later
    assert ended(again)


def test_an_async_generator_in_a_job_of_several_partitions() -> None:
    sink = ps.memory()
    source = ps.from_iterator(slowly, schema="n bigint", partitions=3)
    cluster = Cluster(plan_of(ps.stream("slow", source).to(sink), parallelism=2, epoch="100ms"))
    deadline = time.monotonic() + WAIT_S
    while not cluster.ended:
        assert time.monotonic() < deadline
        cluster.run_until(cluster.now_us + 5_000)
    assert sorted(row.n for row in sink.rows) == [10 * part + n for part in range(3) for n in range(5)]


def test_a_function_that_never_ends_waits_for_its_reader() -> None:
    given = 0
    stopped = threading.Event()

    def forever() -> Iterator[int]:
        nonlocal given
        try:
            while True:
                given += 1
                yield given
        finally:
            stopped.set()

    reader = ps.from_iterator(forever, schema="n bigint").reader(0, 1, 0)
    assert read(reader, 5) == [1, 2, 3, 4, 5]
    assert reader.backlog_records(0) <= 1_000
    assert given <= 1_010
    reader.close()
    assert stopped.wait(WAIT_S)


def test_what_a_function_does_wrong_is_told() -> None:
    def raises() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    reader = ps.from_iterator(raises, schema="n bigint").reader(0, 1, 0)
    assert read(reader, 1) == [1]
    with pytest.raises(SourceFailed, match=r"(?s)KeyError: 'gone'.*in raises"):
        read(reader, 1)
    bad = ps.from_iterator(lambda: iter(["text"]), schema="n bigint").reader(0, 1, 0)
    with pytest.raises(SourceFailed, match="declared bigint"):
        read(bad, 1)
    with pytest.raises(InvalidOption, match="function"):
        ps.from_iterator([1, 2], schema="n bigint")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="position"):
        ps.from_iterator(after, schema="n bigint", position=lambda row: 1, repeats=True)
