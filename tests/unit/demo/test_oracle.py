"""The judge of the pipeline that chaos brings along: it finds each kind of fault, and only that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import penstock as ps
from penstock.demo.oracle import KEYS, PASSED, SOURCES, TOTALS, Record, Total, Verdict, compare, judge, made, pipeline

READ = {"left": [3 * KEYS, 2 * KEYS + 5, 7], "right": [KEYS, 0]}


def output() -> tuple[list[Record], list[Total]]:
    """What an undisturbed run writes."""
    counted, sums = Counter[int](), Counter[int]()
    passed, totals = [], []
    for source, parts in READ.items():
        for partition, read in enumerate(parts):
            for seq in range(read):
                values = made(source, partition, seq)
                key = values[3]
                counted[key] += 1
                sums[key] += seq
                passed.append(Record(*values, counted[key]))
                totals.append(Total(key, counted[key], sums[key]))
    return passed, totals


def wrong(found: Verdict) -> dict[str, int]:
    return {name: count for name, count in found.wrong if count}


def test_the_output_of_an_undisturbed_run_is_exact() -> None:
    passed, totals = output()
    found = compare(passed, totals, READ)
    assert found.is_exact
    assert found.records == len(passed) == sum(map(sum, READ.values()))
    assert not compare([], [], {"left": [0, 0, 0]}).is_exact, "nothing was shown"


def test_all_keys_come_once_in_a_round_of_a_partition() -> None:
    rounds = [[made("left", 1, rounds * KEYS + at)[3] for at in range(KEYS)] for rounds in range(3)]
    assert all(sorted(each) == list(range(KEYS)) for each in rounds)
    assert rounds[0] != rounds[1] != rounds[2]


def without(rows: list[Record]) -> None:
    """The last record of a key, so that the others are counted as before."""
    del rows[-1]


def again(rows: list[Record]) -> None:
    rows.append(rows[-1])


def exchanged(rows: list[Record]) -> None:
    """Two records of a key and partition, each with the other's count, so that the state itself was right."""
    second = next(at for at, each in enumerate(rows) if each.key == rows[0].key and each.key_seq == 1)
    one, two = rows[0], rows[second]
    rows[0], rows[second] = (
        msgspec.structs.replace(two, nth=one.nth),
        msgspec.structs.replace(one, nth=two.nth),
    )


def invented(rows: list[Record]) -> None:
    rows.append(Record(*made("right", 0, READ["right"][0]), 1))


def of_no_source(rows: list[Record]) -> None:
    rows.append(Record(*made("right", 7, 0), 1))


def damaged(rows: list[Record]) -> None:
    rows[-1] = msgspec.structs.replace(rows[-1], crc=rows[-1].crc ^ 1)


def forgotten(rows: list[Record]) -> None:
    rows[-1] = msgspec.structs.replace(rows[-1], nth=1)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (without, {"lost": 1}),
        (again, {"duplicated": 1, "miscounted": 1}),
        (exchanged, {"reordered": 1}),
        (invented, {"phantom": 1}),
        (of_no_source, {"phantom": 1}),
        (damaged, {"corrupt": 1, "lost": 1}),
        (forgotten, {"miscounted": 1}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_each_fault_is_found(plant: Callable[[list[Record]], None], expected: dict[str, int]) -> None:
    passed, totals = output()
    plant(passed)
    found = compare(passed, totals, READ)
    assert wrong(found) == expected
    assert not found.is_exact


def test_totals_that_fall_or_end_elsewhere_are_found() -> None:
    passed, totals = output()
    assert wrong(compare(passed, [*totals, totals[-1]], READ)) == {"miscounted": 1}
    last = totals[-1]
    assert wrong(compare(passed, [*totals[:-1], Total(last.key, last.records, last.seqs + 1)], READ)) == {
        "miscounted": 1
    }


def test_what_the_job_writes_is_read_as_it_is(tmp_path: Path) -> None:
    assert judge(tmp_path, {"left": [1, 0, 0]}).lost == 1
    for name, rows in zip((PASSED, TOTALS), output(), strict=True):
        (tmp_path / name).mkdir()
        half = len(rows) // 2
        for epoch, part in enumerate((rows[:half], rows[half:])):
            lines = b"\n".join(msgspec.json.encode(each) for each in part)
            (tmp_path / name / f"part-{epoch:08d}-0000.jsonl").write_bytes(lines + b"\n")
    assert judge(tmp_path, READ).is_exact


def test_the_pipeline_has_both_sources_two_sinks_and_replicas(tmp_path: Path) -> None:
    names = {node.name for node in pipeline(tmp_path).nodes()}
    assert names >= {*SOURCES, PASSED, TOTALS, *(f"work_{each}" for each in SOURCES)}
    assert isinstance(pipeline(tmp_path), ps.Pipeline)
