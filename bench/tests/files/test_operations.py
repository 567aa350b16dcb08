"""Operations of workload files: record form and batch form agree, and loads cost what they say."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.types import Schema
from penstock_bench.files import loads, operations
from penstock_bench.files.chance import PRIME, Chance, Combined, Relabel, limit
from penstock_bench.files.loads import Burner, costs
from penstock_bench.files.messages import MESSAGE
from penstock_bench.files.model import Loads

COUNTED = Schema.parse("key string, window_start timestamp, window_end timestamp, count bigint, id bigint")
PAIRED = Schema.parse("key string, value string, time timestamp, id bigint, right_value string, right_id bigint")
IDS = [0, 1, 2, 77, PRIME // 2, PRIME - 1]
MESSAGES = [MESSAGE.record_type(f"key{id % 3}", "abcdefghij"[: id % 11], id, id) for id in [*IDS, *range(100, 300)]]
WINDOWS = [COUNTED.record_type("key1", id * 10, id * 10 + 40, id % 50, id) for id in IDS]
PAIRS = [PAIRED.record_type("key1", "ab", 5, x, "cd", y) for x in IDS for y in IDS]


@pytest.mark.parametrize(
    ("operation", "flat", "schema", "rows"),
    [
        (operations.Resize(0.37, Relabel.of(1, "t", 0)), False, MESSAGE, MESSAGES),
        (operations.Resize(1, Relabel.of(1, "t", 2)), False, MESSAGE, MESSAGES),
        (operations.Resize(2.5, Relabel.of(1, "t", 1)), False, MESSAGE, MESSAGES),
        (operations.Modify(1, "t", 1.5, 2.25), True, MESSAGE, MESSAGES),
        (operations.Modify(1, "t", 1, 0.4), True, MESSAGE, MESSAGES),
        (operations.Modify(1, "t", 0.5, 3), True, MESSAGE, MESSAGES),
        (operations.Count(1, "t", 10), False, COUNTED, WINDOWS),
        (operations.Pair(1, "t"), False, PAIRED, PAIRS),
        (Burner(**costs(Loads(cpu_load=0.01, mem_load=0.001, disk_load=0.001), 10_000)), False, MESSAGE, MESSAGES),
    ],
)
def test_both_forms_agree(operation: Any, flat: bool, schema: Schema, rows: list[Any]) -> None:
    one_by_one = [made for row in rows for made in (operation(row) if flat else [operation(row)])]
    assert MESSAGE.to_rows(operation.batch(schema.to_batch(rows))) == one_by_one
    for size in (0, 1):
        batch = operation.batch(schema.to_batch(rows[:size]))
        made = [each for row in rows[:size] for each in (operation(row) if flat else [operation(row)])]
        assert MESSAGE.to_rows(batch) == made


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, "abc"), (1, "abcdefg"), (2.5, "abcdefgabcdefgabc"), (0.1, "")])
def test_values_are_cut_or_repeated(ratio: float, expected: str) -> None:
    assert operations.Resize(ratio, Relabel.of(0, "t", 0)).value("abcdefg") == expected


def test_draws_are_the_same_as_an_expression_and_never_overflow() -> None:
    chance = Chance.of(3, "t")
    combined = Combined(PRIME - 1, PRIME - 1, PRIME - 1)
    assert combined.id(PRIME - 1, PRIME - 1) < PRIME
    rows = [{"id": id} for id in IDS]
    stream = ps.stream("ids", ps.records(rows, schema="id bigint not null")).select(draw=chance.draw(ps.col("id")))
    assert [row["draw"] for row in ps.testing.collect(stream)] == [chance.draw(id) for id in IDS]


def test_draws_are_spread_evenly_and_each_transformation_has_its_own() -> None:
    count = 100_000
    first, second = Chance.of(0, "filter1"), Chance.of(0, "filter2")
    halves = [(first.draw(id) < limit(0.5), second.draw(id) < limit(0.5)) for id in range(count)]
    for both in ((True, True), (True, False), (False, True), (False, False)):
        assert halves.count(both) / count == pytest.approx(0.25, abs=0.01)
    assert sum(first.draw(id) < limit(0.03) for id in range(count)) / count == pytest.approx(0.03, abs=0.003)


def test_the_numbers_of_a_transformation_are_those_in_the_documents() -> None:
    """Other engines compute them from docs/workloads.md: a change here changes every result."""
    assert Chance.of(0, "filter1") == Chance(a=1902637365, b=1599016539, c=1821269071)
    assert Chance.of(0, "filter1").draw(41) == 1539214295 < limit(0.75) == 1610612735
    assert Relabel.of(0, "split1", 1) == Relabel(a=802825672, b=105412742)
    assert Combined.of(0, "join1") == Combined(a=220067692, b=1609311862, c=282099520)


def test_cpu_load_is_a_share_of_a_core() -> None:
    burner = Burner(**costs(Loads(cpu_load=0.5), rate_eps=1000))
    burner.burn(1)
    before_s = time.process_time()
    burner.burn(200)
    # 200 messages at 1,000/s are 0.2 s of half a core. A shared machine may run slower now than when it was measured.
    assert 0.05 < time.process_time() - before_s < 0.4


def test_memory_is_held_and_a_file_is_gone_round_in() -> None:
    burner = Burner(**costs(Loads(mem_load=0.5, disk_load=0.25), rate_eps=1000))
    assert not hasattr(burner, "held"), "made with the first message"
    burner.burn(10)
    assert len(burner.held) == loads.MEMORY_HELD_BYTES // 2
    assert os.fstat(burner.file.fileno()).st_size == 10 * loads.DISK_WRITTEN_BYTES // 4
    burner.burn(loads.DISK_FILE_BYTES // loads.DISK_WRITTEN_BYTES)
    assert os.fstat(burner.file.fileno()).st_size == loads.DISK_FILE_BYTES // 4
    copy = cloudpickle.loads(cloudpickle.dumps(burner))
    assert isinstance(copy, Burner)
    assert not hasattr(copy, "held")
    assert len(cloudpickle.dumps(burner)) < 10_000
