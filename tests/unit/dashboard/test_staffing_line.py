"""What the live view says of workers that follow the load."""

from __future__ import annotations

from penstock.control.hot_groups import HotGroup
from penstock.control.staffing import StaffingView
from penstock.dashboard.view import _staffing


def test_bounds_load_and_reason() -> None:
    found = StaffingView(present=2, wanted=3, least=1, most=4, utilisation={0: 0.71, 1: 0.685}, reason="because")
    assert _staffing(found).plain == "2 of 1 to 4 workers   3 wanted   busy 71% 68%   because"
    assert _staffing(StaffingView(present=2, wanted=2, least=1, most=4, pinned=True)).plain == (
        "2 of 1 to 4 workers   settled by the user"
    )


def test_nothing_is_said_of_a_number_that_stays_but_what_keeps_it_busy() -> None:
    fixed = StaffingView(present=2, wanted=2, least=2, most=2)
    assert _staffing(None).plain == _staffing(fixed).plain == ""
    fixed.hot = [HotGroup("count", 7, 1, 0.41, "'ann'")]
    assert _staffing(fixed).plain == "key group 7 ('ann', instance 1) has 41% of the records of count"
