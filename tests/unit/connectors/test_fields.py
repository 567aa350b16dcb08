"""Fields: what they draw, in which distribution, alike in JSON and columns."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest

from penstock.connectors import fields, generator
from penstock.connectors.draws import FieldSpec
from penstock.errors import InvalidOption
from penstock.types import Schema

_COUNT = 20_000


def _column(spec: FieldSpec, count: int = _COUNT, seed: int = 0) -> list[object]:
    source = generator({"x": spec}, rate=1000, seed=seed, format="columns")
    return [row.x for row in source.records(0, count, 0)]


def _near(count: int, probability: float, total: int = _COUNT) -> bool:
    """Within five standard deviations; the draws are fixed by the seed, so this cannot flicker."""
    return abs(count - total * probability) < 5 * math.sqrt(total * probability * (1 - probability)) + 1


def test_choice_is_even() -> None:
    counts = Counter(_column(fields.choice(["a", "b", "c"])))
    assert set(counts) == {"a", "b", "c"}
    assert all(_near(count, 1 / 3) for count in counts.values())


def test_choice_by_weights() -> None:
    counts = Counter(_column(fields.choice([1, 2, 3, 4], weights=[1, 0, 3, 0])))
    assert set(counts) == {1, 3}
    assert _near(counts[1], 0.25)


def test_choice_by_zipf() -> None:
    counts = Counter(_column(fields.choice([0, 1, 2], zipf=1)))
    assert _near(counts[0], 6 / 11)
    assert _near(counts[2], 2 / 11)


def test_choice_may_hold_nulls_and_mixed_numbers() -> None:
    source = generator({"x": fields.choice([None, 1, 2.5])}, rate=1, format="columns")
    assert source.schema == Schema.parse("x double")
    assert {row.x for row in source.records(0, 100, 0)} == {None, 1.0, 2.5}


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 9), (-3, 3), (5, 5), (0, 1 << 40), (-(1 << 62), 1 << 62), (-(1 << 63), (1 << 63) - 1)],
)
def test_integers_stay_in_range(low: int, high: int) -> None:
    drawn = _column(fields.integers(low, high), 2000)
    assert all(isinstance(value, int) and low <= value <= high for value in drawn)
    assert len(set(drawn)) >= min(high - low + 1, 1990)
    assert min(drawn) <= low + (high - low) // 10  # type: ignore[type-var, operator]
    assert max(drawn) >= high - (high - low) // 10  # type: ignore[type-var, operator]


def test_uniform() -> None:
    drawn = _column(fields.uniform(-1, 3))
    assert all(isinstance(value, float) and -1 <= value <= 3 for value in drawn)
    assert _near(sum(value < 0 for value in drawn), 0.25)  # type: ignore[operator]


def test_normal() -> None:
    drawn = _column(fields.normal(10, 2))
    assert _near(sum(value < 10 for value in drawn), 0.5)  # type: ignore[operator]
    assert _near(sum(abs(value - 10) < 2 for value in drawn), 0.6827)  # type: ignore[operator]


def test_words_and_text() -> None:
    drawn = _column(fields.words(["to", "be", "or"], 4), 3000)
    assert all(isinstance(value, str) and len(value.split(" ")) == 4 for value in drawn)
    assert {word for value in drawn for word in str(value).split(" ")} == {"to", "be", "or"}
    for length in (1, 4, 7):
        letters = _column(fields.text(length), 3000)
        assert {len(str(value)) for value in letters} == {length}
        assert set("".join(map(str, letters))) == set("abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 36])
def test_hexid(length: int) -> None:
    drawn = _column(fields.hexid(length), 500)
    assert {len(str(value)) for value in drawn} == {length}
    assert set("".join(map(str, drawn))) == set("0123456789abcdef")
    assert length < 15 or len(set(drawn)) == 500


def test_sequence_and_event_time() -> None:
    source = generator(
        {"n": fields.sequence(), "ms": fields.event_time(), "us": fields.event_time(unit="us")},
        rate=3,
        total=4,
    )
    assert [json.loads(row.value) for row in source.records(0, 10, 1_000_000)] == [
        {"n": 0, "ms": 1000, "us": 1_000_000},
        {"n": 1, "ms": 1333, "us": 1_333_333},
        {"n": 2, "ms": 1666, "us": 1_666_666},
        {"n": 3, "ms": 2000, "us": 2_000_000},
    ]


def test_event_time_column_is_a_timestamp_cut_to_its_unit() -> None:
    source = generator({"t": fields.event_time(unit="s")}, rate=3, format="columns")
    assert source.schema == Schema.parse("t timestamp not null")
    assert [row.t for row in source.records(0, 5, 0)] == [0, 0, 0, 1_000_000, 1_000_000]


def test_jitter_takes_off_at_most_so_much() -> None:
    source = generator({"t": fields.event_time(unit="us", jitter="100ms")}, rate=1000, format="columns")
    late = [offset * 1000 - row.t for offset, row in enumerate(source.records(0, 2000, 0))]
    assert all(0 <= late_us <= 100_000 for late_us in late)
    assert min(late) < 1_000
    assert max(late) > 99_000


_ALL = {
    "choice": fields.choice(['say "hi"', "100%", "é"], zipf=1.1),
    "integers": fields.integers(-5, 5),
    "uniform": fields.uniform(0, 1),
    "normal": fields.normal(0, 1),
    "words": fields.words(['a"b', "ü", "%d"], 3),
    "text": fields.text(9),
    "hexid": fields.hexid(36),
    "sequence": fields.sequence(),
    "flag": True,
    "percent": '5% "off"',
    "list_of_numbers": [1, 2],
}


def test_json_and_columns_hold_the_same_values() -> None:
    columns = generator(_ALL, rate=10, seed=3, format="columns").records(1000, 300, 5)
    texts = generator(_ALL, rate=10, seed=3).records(1000, 300, 5)
    assert [json.loads(row.value) for row in texts] == [row._asdict() for row in columns]


def test_columns_schema() -> None:
    assert generator(_ALL, rate=1, format="columns").schema.ddl == (
        "choice string not null, integers bigint not null, uniform double not null, normal double not null, "
        "words string not null, text string not null, hexid string not null, sequence bigint not null, "
        "flag boolean not null, percent string not null, list_of_numbers array<bigint> not null"
    )


def test_a_field_does_not_depend_on_the_others() -> None:
    alone = _column(fields.integers(0, 1000), 100)
    source = generator({"y": fields.hexid(9), "x": fields.integers(0, 1000)}, rate=5, format="columns")
    assert [row.x for row in source.records(0, 100, 0)] == alone
    assert [row.x for row in source.records(0, 100, 0)] != _column(fields.integers(0, 1000), 100, seed=1)


@pytest.mark.parametrize(
    "build",
    [
        lambda: fields.choice([]),
        lambda: fields.choice("abc"),
        lambda: fields.choice([1, "a"]),
        lambda: fields.choice([1 << 63]),
        lambda: fields.choice([None]),
        lambda: fields.choice([1, 2], weights=[1]),
        lambda: fields.choice([1, 2], weights=[1, -1]),
        lambda: fields.choice([1, 2], weights=[0, 0]),
        lambda: fields.choice([1, 2], weights=[1, math.nan]),
        lambda: fields.choice([1, 2], weights=[1, 1], zipf=1),
        lambda: fields.choice([1, 2], zipf=-1),
        lambda: fields.integers(2, 1),
        lambda: fields.integers(0, 1 << 63),
        lambda: fields.integers(0.5, 1),
        lambda: fields.uniform(1, 0),
        lambda: fields.uniform(0, math.inf),
        lambda: fields.normal(0, -1),
        lambda: fields.words(["a", 1], 2),
        lambda: fields.words(["a"], 0),
        lambda: fields.text(0),
        lambda: fields.hexid(1 << 30),
        lambda: fields.event_time(unit="min"),
        lambda: fields.event_time(jitter="-1s"),
    ],
)
def test_bad_options_are_refused(build: object) -> None:
    with pytest.raises(InvalidOption):
        build()  # type: ignore[operator]
