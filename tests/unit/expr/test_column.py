"""Building expressions: what is accepted, how it reads, what is refused."""

from __future__ import annotations

import enum
import pickle
from datetime import UTC, date, datetime

import numpy as np
import pytest

from penstock.errors import InvalidOption, PenstockError, TypeMismatch
from penstock.expr import Column, coalesce, col, lit, when


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (col("event_type") == "view", "event_type = 'view'"),
        (col("s") != "it's", r"s <> 'it\'s'"),
        ((col("a") > 1) & (col("b") <= 2) | col("c"), "a > 1 AND b <= 2 OR c"),
        ((col("a") > 1) & ((col("b") < 2) | col("c")), "a > 1 AND (b < 2 OR c)"),
        (~(col("a") == 1), "NOT a = 1"),
        (~(col("a") & col("b")), "NOT (a AND b)"),
        ((col("a") + 1) * 2 - col("b"), "(a + 1) * 2 - b"),
        (col("a") - (col("b") - 1), "a - (b - 1)"),
        (1 - col("a"), "1 - a"),
        (-(col("a") + 1), "-(a + 1)"),
        (col("a").is_null() | col("b").is_not_null(), "a IS NULL OR b IS NOT NULL"),
        (col("a").isin(1, 2), "a IN (1, 2)"),
        (col("a").between(1, 2), "a BETWEEN 1 AND 2"),
        (col("a").cast("bigint").alias("n"), "CAST(a AS bigint) AS n"),
        ((col("a").alias("n") + 1) * 2, "(a + 1) * 2"),
        (col("s").rlike("^x"), "s RLIKE '^x'"),
        (col("s").lower().contains("x"), "contains(lower(s), 'x')"),
        (col("s").substr(1, 3), "substr(s, 1, 3)"),
        (col("v").startswith(b"\x01"), "startswith(v, X'01')"),
        (coalesce(col("a"), None, True), "coalesce(a, NULL, TRUE)"),
        (when(col("a") > 1, "x").otherwise(col("s")), "CASE WHEN a > 1 THEN 'x' ELSE s END"),
        (col("t") > datetime(2030, 1, 2, tzinfo=UTC), "t > TIMESTAMP '2030-01-02 00:00:00+00:00'"),
        (col("t") == date(2030, 1, 2), "t = DATE '2030-01-02'"),
        (abs(col("a")), "abs(a)"),
    ],
)
def test_reads_as_sql(column: Column, text: str) -> None:
    assert str(column) == text
    assert repr(column) == f"Column<{text}>"


def test_has_no_truth_value() -> None:
    with pytest.raises(TypeMismatch, match=r"Use & \| ~ instead of and, or, not"):
        bool(col("a") == 1)
    with pytest.raises(TypeMismatch):
        assert 1 < col("a") < 3


def test_is_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(col("a"))


def test_survives_pickling() -> None:
    column = when(col("a") > 1, "x").otherwise(col("s").cast("string"))
    assert str(pickle.loads(pickle.dumps(column))) == str(column)


class Kind(enum.StrEnum):
    VIEW = "view"


@pytest.mark.parametrize(
    ("given", "plain"),
    [(np.int32(5), 5), (np.float64(0.5), 0.5), (np.bool_(True), True), (Kind.VIEW, "view")],
)
def test_literals_become_plain_values(given: object, plain: object) -> None:
    payload = lit(given).payload
    assert payload == plain
    assert type(payload) is type(plain)


def test_isin_takes_values_or_one_collection() -> None:
    assert str(col("a").isin([1, 2])) == str(col("a").isin(1, 2))


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: lit(1j), TypeMismatch),
        (lambda: lit([1]), TypeMismatch),
        (lambda: col(3), TypeMismatch),  # type: ignore[arg-type]
        (coalesce, TypeMismatch),
        (lambda: when("a", 1), TypeMismatch),  # type: ignore[arg-type]
        (lambda: col("a").isin(1, None), TypeMismatch),
        (lambda: col("a").contains(5), TypeMismatch),  # type: ignore[arg-type]
        (lambda: col("a").rlike("("), InvalidOption),
        (lambda: list(col("a")), TypeMismatch),
        (lambda: col("a")[1:2], TypeMismatch),
        (lambda: col("a").substr(1, -1), InvalidOption),
        (lambda: col("a").split(""), InvalidOption),
        (lambda: col("a").alias(""), InvalidOption),
        (lambda: col("a").cast("money"), PenstockError),
    ],
)
def test_refuses(build: object, error: type[PenstockError]) -> None:
    with pytest.raises(error):
        build()  # type: ignore[operator]
