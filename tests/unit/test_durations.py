"""Durations as users write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.durations import format_us, parse_us
from penstock.errors import InvalidOption

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1us", 1),
        ("500ms", 500_000),
        (" 1.5 s ", 1_500_000),
        ("1m", 60_000_000),
        ("2h", 7_200_000_000),
        ("366d", 366 * DAY_US),
        (2, 2_000_000),
        (0.25, 250_000),
        (0.000001, 1),
    ],
)
def test_good(text: Any, us: int) -> None:
    assert parse_us(text, option="x") == us


@pytest.mark.parametrize(
    "bad",
    [
        *("", "s", "10", "1 0s", "-1s", "+1s", "1e3s", "1S", "1min", "1s1s", "0s", "0.4us", "367d", "1s\x00"),
        *(0, -1, 1e-7, 10**9, float("nan"), float("inf"), True, None, [], b"1s"),
        1e308,
        "9" * 400 + "s",
    ],
)
def test_bad(bad: Any) -> None:
    with pytest.raises(InvalidOption, match="x=") as error:
        parse_us(bad, option="x", operation="op")
    assert error.value.operation == "op"


def test_zero_where_it_is_sensible() -> None:
    assert parse_us(0, option="x", allow_zero=True) == parse_us("0s", option="x", allow_zero=True) == 0
    with pytest.raises(InvalidOption, match="from 0"):
        parse_us(-1, option="x", allow_zero=True)


@given(st.integers(0, 366 * DAY_US))
def test_what_is_written_is_read_again(us: int) -> None:
    assert parse_us(format_us(us), option="x", allow_zero=True) == us


def test_the_largest_whole_unit() -> None:
    assert [format_us(us) for us in (0, 1, 1_000, 90_000_000, 3_600_000_000, DAY_US)] == [
        "0us",
        "1us",
        "1ms",
        "90s",
        "1h",
        "1d",
    ]
