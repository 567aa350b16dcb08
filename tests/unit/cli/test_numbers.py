"""Numbers for people."""

from __future__ import annotations

import pytest

from penstock.dashboard.numbers import human, measure, span


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (2.5, "2.5"),
        (7, "7"),
        (250.4, "250"),
        (999.4, "999"),
        (999.6, "1.00K"),
        (1_000, "1.00K"),
        (9_994, "9.99K"),
        (9_996, "10.0K"),
        (12_345, "12.3K"),
        (99_960, "100K"),
        (999_499, "999K"),
        (999_500, "1.00M"),
        (1_500_000, "1.50M"),
        (2e15, "2000T"),
        (-12_345, "-12.3K"),
    ],
)
def test_human(number: float, text: str) -> None:
    assert human(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0.00"), (0.042, "0.04"), (1.25, "1.25"), (12.34, "12.3"), (450, "450"), (12_345, "12.3K")]
)
def test_measure(number: float, text: str) -> None:
    assert measure(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59.9, "59s"), (65, "1m 05s"), (11_400, "3h 10m")])
def test_span(seconds: float, text: str) -> None:
    assert span(seconds) == text
