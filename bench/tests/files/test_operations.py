"""Operations of workload files: record form and batch form agree, and loads cost what they say."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock_bench.files import build, program
from penstock_bench.files.messages import MESSAGE
from penstock_bench.files.model import Loads
from penstock_bench.files.program import Burner, combining, costs, drawing, limit, modify_step, relabelling
from penstock_bench.foreign.programs import loads as plain
from penstock_bench.foreign.programs.chance import PRIME, combine, draw

IDS = [0, 1, 2, 77, PRIME // 2, PRIME - 1]
MESSAGES = [MESSAGE.record_type(f"key{id % 3}", "abcdefghij"[: id % 11], id, id) for id in [*IDS, *range(100, 300)]]


@pytest.mark.parametrize(
    ("operation", "flat"),
    [
        (build.Modify(modify_step(1, "t", 1.5, 2.25)), True),
        (build.Modify(modify_step(1, "t", 1, 0.4)), True),
        (build.Modify(modify_step(1, "t", 0.5, 3)), True),
        (Burner(**costs(Loads(cpu_load=0.01, mem_load=0.001, disk_load=0.001), 10_000)), False),
    ],
)
def test_both_forms_agree(operation: Any, flat: bool) -> None:
    for rows in (MESSAGES, MESSAGES[:0], MESSAGES[:1]):
        made = [each for row in rows for each in (operation(row) if flat else [operation(row)])]
        assert MESSAGE.to_rows(operation.batch(MESSAGE.to_batch(rows))) == made


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, "abc"), (1, "abcdefg"), (2.5, "abcdefgabcdefgabc"), (0.1, "")])
def test_values_are_cut_or_repeated(ratio: float, expected: str) -> None:
    assert build.Modify(modify_step(0, "t", ratio, 1)).value("abcdefg") == expected
    values = ps.stream("values", ps.records([{"value": "abcdefg"}], schema="value string not null"))
    assert ps.testing.collect(values.select(value=build.resized(ratio))) == [{"value": expected}]


def test_draws_are_the_same_as_an_expression_and_never_overflow() -> None:
    numbers = drawing(3, "t")
    assert combine([PRIME - 1] * 3, PRIME - 1, PRIME - 1) < PRIME
    assert (draw(numbers, np.array(IDS)) == [draw(numbers, id) for id in IDS]).all()
    rows = [{"id": id} for id in IDS]
    stream = ps.stream("ids", ps.records(rows, schema="id bigint not null")).select(draw=draw(numbers, ps.col("id")))
    assert [row["draw"] for row in ps.testing.collect(stream)] == [draw(numbers, id) for id in IDS]


def test_draws_are_spread_evenly_and_each_transformation_has_its_own() -> None:
    count = 100_000
    first, second = drawing(0, "filter1"), drawing(0, "filter2")
    halves = [(draw(first, id) < limit(0.5), draw(second, id) < limit(0.5)) for id in range(count)]
    for both in ((True, True), (True, False), (False, True), (False, False)):
        assert halves.count(both) / count == pytest.approx(0.25, abs=0.01)
    assert sum(draw(first, id) < limit(0.03) for id in range(count)) / count == pytest.approx(0.03, abs=0.003)


def test_the_numbers_of_a_transformation_are_those_in_the_documents() -> None:
    """Other engines compute them from docs/workloads.md: a change here changes every result."""
    assert drawing(0, "filter1") == [1902637365, 1599016539, 1821269071]
    assert draw(drawing(0, "filter1"), 41) == 1539214295 < limit(0.75) == 1610612735
    assert relabelling(0, "split1", 1) == [802825672, 105412742]
    assert combining(0, "join1") == [220067692, 1609311862, 282099520]


def test_cpu_load_is_a_share_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain.spins_per_second() > 0
    rounds: list[int] = []
    monkeypatch.setattr(plain, "spins_per_second", lambda: 10e6)
    monkeypatch.setattr(plain, "spin", rounds.append)
    burner = Burner(**costs(Loads(cpu_load=0.5), rate_eps=1000))
    burner.burn(1)
    burner.burn(200)
    assert rounds == [5_000, 1_000_000], "200 messages at 1,000/s are 0.2 s of half a core"


def test_memory_is_held_and_a_file_is_gone_round_in() -> None:
    burner = Burner(**costs(Loads(mem_load=0.5, disk_load=0.25), rate_eps=1000))
    assert not hasattr(burner, "held"), "made with the first message"
    burner.burn(10)
    assert len(burner.held) == program.MEMORY_HELD_BYTES // 2
    assert os.fstat(burner.file.fileno()).st_size == 10 * program.DISK_WRITTEN_BYTES // 4
    burner.burn(program.DISK_FILE_BYTES // program.DISK_WRITTEN_BYTES)
    assert os.fstat(burner.file.fileno()).st_size == program.DISK_FILE_BYTES // 4
    copy = cloudpickle.loads(cloudpickle.dumps(burner))
    assert isinstance(copy, Burner)
    assert not hasattr(copy, "held")
    assert len(cloudpickle.dumps(burner)) < 10_000
