"""Pieces of records: nothing is lost, no piece is larger than it may be, one large record travels alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataset import Scale, cut_columns, cut_rows, sizes, unpack
from penstock.dataset.sizes import WEIGH_RECORDS
from penstock.types import Schema

SCHEMA = Schema.parse("n bigint, text string")
LENGTHS = st.lists(st.sampled_from([0, 1, 10, 300, 5_000]), min_size=1, max_size=60)
LIMITS = st.sampled_from([1, 50, 1_000, 20_000])


def rows_of(lengths: list[int]) -> list:
    return [SCHEMA.record_type(n, "x" * length) for n, length in enumerate(lengths)]


@given(LENGTHS, LIMITS)
def test_rows_are_cut_by_their_bytes(lengths: list[int], limit: int) -> None:
    rows = rows_of(lengths)
    pieces = list(cut_rows(rows, limit))
    decode = msgspec.msgpack.Decoder(list[SCHEMA.record_type]).decode
    assert [row for _, packed in pieces for row in decode(packed)] == rows
    assert all(len(packed) <= limit or count == 1 for count, packed in pieces)
    assert [len(decode(packed)) for _, packed in pieces] == [count for count, _ in pieces]
    assert pieces == list(cut_rows(rows, limit)), "the same records give the same pieces"


@given(LENGTHS, LIMITS)
def test_columns_are_cut_by_their_bytes(lengths: list[int], limit: int) -> None:
    rows = rows_of(lengths)
    pieces = list(cut_columns(SCHEMA.to_batch(rows), limit))
    assert [row for _, packed in pieces for row in SCHEMA.to_rows(unpack(packed, SCHEMA))] == rows
    assert all(len(packed) <= limit or count == 1 for count, packed in pieces)


def test_few_pieces_are_made_where_records_are_alike() -> None:
    pieces = list(cut_rows(rows_of([1_000] * 1_000), 100_000))
    assert 10 <= len(pieces) <= 12


@given(st.lists(st.integers(1, 200), min_size=1, max_size=40), st.sampled_from([10, 1_000, 100_000]))
def test_a_scale_knows_what_equal_records_weigh(blocks: list[int], length: int) -> None:
    scale = Scale()
    row = rows_of([length])[0]
    exact = len(msgspec.msgpack.encode(row))
    for count in blocks:
        scale.add([row] * count)
    assert exact <= scale.record_bytes <= exact + 5


def test_a_scale_follows_when_records_become_larger_and_smaller() -> None:
    small, large = rows_of([10]), rows_of([100_000])
    scale = Scale()
    for _ in range(1_000):
        scale.add(small)
    scale.add(large * WEIGH_RECORDS)
    assert scale.record_bytes > 70_000, "a large block begins a new kind of data"
    for _ in range(30 * WEIGH_RECORDS):
        scale.add(small)
    assert scale.record_bytes < 100


def test_a_scale_weighs_few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[int] = []
    monkeypatch.setattr(sizes, "_encode", lambda rows: weighed.append(len(rows)) or b"x" * len(rows))
    scale = Scale()
    for _ in range(10 * WEIGH_RECORDS):
        scale.add(rows_of([10]))
    assert sum(weighed) <= 10
    scale.add(rows_of([10] * 10_000))
    assert weighed[-1] <= 4
