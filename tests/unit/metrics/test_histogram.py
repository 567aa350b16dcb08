"""The histogram: quantiles within their bound, merging, and what was recorded since."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics import Histogram
from penstock.metrics.histogram import bucket_bound

VALUES = st.lists(st.integers(0, 200) | st.integers(0, 10**12), max_size=60)


def of(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


@given(VALUES.filter(bool), st.floats(0, 1))
def test_a_quantile_is_exact_or_a_little_too_high(values: list[int], q: float) -> None:
    exact = sorted(values)[max(1, math.ceil(round(q * len(values), 6))) - 1]
    found = of(values).quantile(q)
    assert exact <= found <= exact + exact // 32
    assert found <= max(values)


@given(st.integers(0, 10**15))
def test_buckets_hold_their_values(value: int) -> None:
    (bucket,) = of([value]).counts
    assert value <= bucket_bound(bucket)
    if bucket:
        assert bucket_bound(bucket - 1) < value
    (bound,) = of([bucket_bound(bucket)]).counts
    assert bound == bucket


@given(VALUES, VALUES)
def test_a_merge_equals_recording_all(left: list[int], right: list[int]) -> None:
    merged = of(left)
    merged.merge(of(right))
    both = of(left + right)
    assert (merged.counts, merged.total, merged.maximum) == (both.counts, both.total, both.maximum)


@given(VALUES, VALUES)
def test_since_leaves_what_came_later(earlier: list[int], later: list[int]) -> None:
    total = of(earlier)
    before = total.copy()
    for value in later:
        total.record(value)
    since = total.since(before)
    expected = of(later)
    assert (since.counts, since.total) == (expected.counts, expected.total)
    assert expected.maximum <= since.maximum <= expected.maximum + expected.maximum // 32
    assert before.counts == of(earlier).counts, "the copy is independent"


def test_odd_values() -> None:
    empty = Histogram()
    assert (empty.quantile(0.5), empty.total, empty.maximum) == (0, 0, 0)
    clocks = of([-5, -1])
    assert (clocks.quantile(1.0), clocks.total, clocks.maximum) == (0, 2, 0)
    many = Histogram()
    many.record(7, times=3)
    many.record(1000)
    assert (many.total, many.quantile(0.75), many.quantile(1.0)) == (4, 7, 1000)
    assert Histogram(many.counts, many.maximum).total == 4
