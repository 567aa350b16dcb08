"""Exact comparison of rows: what an assertion says when they differ."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import BadRecord
from penstock.testing import Harness, assert_rows

NAN = float("nan")


def said(found: list[object], expected: list[object], **options: Any) -> str:
    with pytest.raises(AssertionError) as raised:
        assert_rows(found, expected, **options)
    return str(raised.value)


def test_equal_rows_are_equal_whatever_their_order() -> None:
    rows = [{"k": "a", "x": NAN, "l": [1, {"b": 2}]}, {"k": "b", "x": None, "l": []}]
    assert_rows(rows, rows[::-1])
    assert_rows([], [])
    assert "in another order: row 0 is {'k': 'b'" in said(rows[::-1], rows, in_order=True)


def test_the_columns_that_differ_are_named() -> None:
    text = said([{"k": "a", "n": 2}, {"k": "b", "n": 1}], [{"k": "b", "n": 1}, {"k": "a", "n": 3}])
    assert text.splitlines() == [
        "2 rows found, 2 expected: 1 missing, 1 unexpected",
        "  expected    {'k': 'a', 'n': 3}",
        "  found       {'k': 'a', 'n': 2}: n is 2, not 3",
    ]
    assert "there is no column n" in said([{"k": "a"}], [{"k": "a", "n": 1}])
    assert "column n is not expected" in said([{"k": "a", "n": 1}], [{"k": "a"}])
    assert "n is True, not 1" in said([{"k": 0, "n": True}], [{"k": 0, "n": 1}])


def test_rows_that_come_too_often_or_not_at_all_are_told_apart() -> None:
    assert "unexpected  {'k': 1}: it is there 2 times, not 1" in said([{"k": 1}] * 2, [{"k": 1}])
    assert "missing     {'k': 1}: it is there 1 times, not 2" in said([{"k": 1}], [{"k": 1}] * 2)
    many = said([{"k": n, "v": "x"} for n in range(50)], [])
    assert "… and 40 more" in many
    assert len(many.splitlines()) == 12
    assert len(said([{"k": "x" * 10_000}], [])) < 500


def test_fractions_may_be_off_by_little_where_that_is_said() -> None:
    found = [{"k": "a", "x": 0.1 + 0.2, "l": [{"y": 1e300}], "n": NAN}, {"k": "b", "x": 2.0, "l": [], "n": NAN}]
    expected = [{"k": "b", "x": 2.0, "l": [], "n": NAN}, {"k": "a", "x": 0.3, "l": [{"y": 1e300}], "n": NAN}]
    assert "x is 0.30000000000000004, not 0.3" in said(found, expected)
    assert_rows(found, expected, tolerance=1e-9)
    assert_rows(found, expected[::-1], tolerance=1e-9, in_order=True)
    assert "in another order" in said(found, expected, tolerance=1e-9, in_order=True)
    assert "x is 0.30000000000000004, not 0.31" in said(found[:1], [{**expected[1], "x": 0.31}], tolerance=1e-9)
    assert "k is 'a', not 'c'" in said(found[:1], [{**expected[1], "k": "c"}], tolerance=1e-9)
    assert "missing" in said(found[:1], [expected[1]] * 2, tolerance=1e-9)


def test_expected_rows_are_read_with_the_schema_of_the_sink() -> None:
    pipeline = ps.stream("in", ps.records([("a", 1, 2.0)], schema="k string, n bigint, x double")).to(ps.memory())
    with Harness(pipeline) as harness:
        harness.run()
        for row in (("a", 1, 2), {"k": "a", "n": 1, "x": 2}, harness.rows()[0]):
            harness.assert_rows([row])
        with pytest.raises(AssertionError, match="n is 1, not 7"):
            harness.assert_rows([("a", 7, 2.0)])
        with pytest.raises(BadRecord, match=r"expected row 0: .*k string, n bigint"):
            harness.assert_rows([("a", 1)])
