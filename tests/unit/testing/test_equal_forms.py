"""Users' functions in both forms: those that agree pass, and each way to disagree is found and told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.errors import InvalidOption, PenstockError, TypeMismatch
from penstock.testing import equal_forms, rows_of

NUMBERS = "n bigint"


def function(batch: Callable[[pa.RecordBatch], Any], schema: str = "m bigint not null") -> Any:
    @ps.op(schema=schema)
    def half(record: Any) -> int:
        return record.n // 2

    half.batch(batch)
    return half


def right(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"m": pc.shift_right(batch["n"], 1)})


def test_forms_that_agree_pass() -> None:
    equal_forms(function(right), schema="n bigint not null", examples=30)
    equal_forms(function(right), [1, -1, 0], schema=NUMBERS)
    equal_forms(lambda s: s.filter("n > 1").select((ps.col("n") * 3).alias("m")), schema=NUMBERS, examples=30)


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (lambda batch: pa.record_batch({"m": pc.divide(batch["n"], 2)}), "m is 0, not -1"),
        (lambda batch: pa.record_batch({"m": right(batch)["m"].take(pc.sort_indices(right(batch)["m"]))}), "order"),
        (lambda batch: pa.record_batch({"q": batch["n"]}), "the batch form fails, and the record form does not"),
    ],
)
def test_forms_that_differ_are_told_with_their_rows(batch: Callable[[pa.RecordBatch], Any], what: str) -> None:
    with pytest.raises(AssertionError, match=what) as raised:
        equal_forms(function(batch), [3, -1], schema=NUMBERS)
    assert "'map': " in str(raised.value)
    assert "for these rows:\n  {'n': 3}\n  {'n': -1}" in str(raised.value)


def test_rows_are_drawn_until_one_tells_the_forms_apart() -> None:
    """A null is nothing to the batch form, and an error in the record form."""
    with pytest.raises(AssertionError, match=r"the record form fails on rows \[0\], the batch form on rows \[\]"):
        equal_forms(function(right, "m bigint"), schema=NUMBERS)


@pytest.mark.parametrize("strategy", [None, "given"])
def test_rows_of_all_types_are_drawn(strategy: str | None) -> None:
    schema = (
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(10,2), i string, j binary, "
        "k date, l timestamp, m array<int>, n map<string,bigint>, o struct<p:int,q:string> not null"
    )
    drawn = rows_of(schema) if strategy else None
    equal_forms(lambda s: s.filter("d IS NOT NULL").drop("a"), drawn, schema=schema, examples=10)


def test_what_cannot_be_compared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeMismatch, match=r"@fn\.batch"):
        equal_forms(ps.op(schema=NUMBERS)(lambda record: record.n), [], schema=NUMBERS)
    with pytest.raises(TypeMismatch, match="simulate"):
        equal_forms(lambda s: s.key_by("n").count(), [], schema=NUMBERS)
    for wrong in (lambda record: record.n, lambda s: s.to(ps.memory())):
        with pytest.raises(TypeMismatch, match="does not turn a stream into a stream"):
            equal_forms(wrong, [], schema=NUMBERS)
    with pytest.raises(InvalidOption, match="strategy"):
        equal_forms(function(right), 7, schema=NUMBERS)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(PenstockError, match=r"penstock\[testing\]"):
        equal_forms(function(right), schema=NUMBERS)
    equal_forms(function(right), [2], schema=NUMBERS)
