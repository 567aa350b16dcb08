"""The search finds the limit of anything that has one, and says where it looked."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidOption
from penstock_bench.meter.search import search


@given(limit=st.floats(2, 5e6), first=st.floats(1, 1e6), precision=st.floats(0.02, 0.5))
def test_it_comes_as_close_to_the_limit_as_it_should(limit: float, first: float, precision: float) -> None:
    found = search(lambda rate: rate <= limit, first, precision=precision, trials_max=60)
    assert found.sustained_eps <= limit
    assert found.failed_eps is not None
    assert limit < found.failed_eps <= found.sustained_eps * (1 + precision)
    assert len({rate for rate, _ in found.trials}) == len(found.trials)


def test_it_begins_where_it_is_told_and_doubles() -> None:
    found = search(lambda rate: rate <= 450, 100, precision=0.5)
    assert [rate for rate, _ in found.trials] == pytest.approx([100, 200, 400, 800, math.sqrt(400 * 800)])
    assert found.sustained_eps == 400


def test_near_the_limit_small_steps_do_and_far_from_it_they_widen() -> None:
    near = search(lambda rate: rate <= 1_050, 1_000, factor=1.2)
    assert [rate for rate, _ in near.trials] == pytest.approx([1_000, 1_200, math.sqrt(1_000 * 1_200)])
    far = search(lambda rate: rate <= 1e6, 1_000, factor=1.2)
    assert len(far.trials) < 18
    assert far.failed_eps is None or far.failed_eps <= 1.1 * far.sustained_eps
    assert far.sustained_eps > 5e5
    below = search(lambda rate: rate <= 500, 1_000, factor=1.2)
    assert 450 < below.sustained_eps <= 500


def test_nothing_above_the_generators_limit_is_tried() -> None:
    found = search(lambda rate: True, 100, ceiling_eps=300)
    assert [rate for rate, _ in found.trials] == [100, 200, 300]
    assert (found.sustained_eps, found.failed_eps) == (300, None)


def test_an_engine_that_sustains_nothing() -> None:
    found = search(lambda rate: False, 100)
    assert found.sustained_eps == 0
    assert found.trials[-1][0] <= 1.0


def test_the_number_of_trials_is_bounded() -> None:
    assert len(search(lambda rate: True, 1, trials_max=5).trials) == 5


def test_a_precision_that_cannot_be_reached_is_refused() -> None:
    with pytest.raises(InvalidOption, match="precision"):
        search(lambda rate: True, 1, precision=0)
