"""Results that a watermark completes at once are sent on in parts: each exactly once, whatever comes in between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from states import restore, snapshot

from penstock.operators import (
    Aggregation,
    Combine,
    ErrorPolicy,
    Errors,
    Reduce,
    StatefulOperator,
    global_window,
    session,
    sliding,
    tumbling,
)
from penstock.operators.keyed import aggregates as agg
from penstock.types import Schema

SCHEMA = Schema.parse("k bigint, at timestamp")
WINDOWS: dict[str, Any] = {
    "tumbling": tumbling("10us", on="at", lateness="3us"),
    "sliding": sliding("10us", slide="5us", on="at", lateness="3us"),
    "kept": tumbling("10us", on="at", allowed_lateness="20us"),
    "updates": tumbling("10us", on="at", emit="update"),
    "session": session("4us", on="at", lateness="3us"),
    "kept and sliding": sliding("10us", slide="5us", on="at", allowed_lateness="20us"),
    "early": tumbling("10us", on="at", lateness="3us", early="5us"),
    "early and sliding": sliding("20us", slide="10us", on="at", early="5us"),
    "never ending": global_window(every="10us", on="at"),
}
BLOCKS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), max_size=20)
MOVES = st.lists(
    st.tuples(st.just("rows"), BLOCKS)
    | st.tuples(st.just("advance"), st.integers(0, 60))
    | st.tuples(st.sampled_from(["go on", "crash"]), st.none()),
    max_size=12,
)


class Job:
    """Both halves of a count; parts leave when they are asked for, or at the end."""

    def __init__(self, window: str, rows_max: int | None) -> None:
        self._of = Aggregation(("k",), (("c", agg.count()),), WINDOWS[window])
        self._whole = window == "session"
        self._combine = Combine(self._of, self._whole)
        self._before = self._combine.build(SCHEMA, Errors("agg", ErrorPolicy.FAIL))
        self._rows_max = rows_max
        self.behind = self._built()
        self._written: list[bytes] = []
        self.out: list[tuple[int, int, int]] = []
        self.late = 0

    def _built(self) -> StatefulOperator:
        reduce = Reduce(self._of, SCHEMA, self._whole)
        made = reduce.build(self._combine.bind(SCHEMA), Errors("agg", ErrorPolicy.FAIL))
        assert isinstance(made, StatefulOperator)
        made.rows_max = self._rows_max
        return made

    def do(self, what: str, given: Any) -> None:
        if what == "rows":
            made = self.behind.process(self._before.process([SCHEMA.record_type(*row) for row in given]).rows)
            self.late += made.late
            self._take(made.rows)
        elif what == "advance":
            self._take(self.behind.advance(given).rows)
        elif what == "go on" and self.behind.behind_us is not None:
            self._take(self.behind.go_on().rows)
        elif what == "crash":
            self._written.append(snapshot(self.behind, full=False))
            self.behind = self._built()
            restore(self.behind, self._written)

    def _take(self, rows: Any) -> None:
        self.out += [(row.k, row.window_end, row.c) for row in rows]

    def end(self) -> None:
        self._take(self.behind.finish().rows)
        while self.behind.behind_us is not None:
            self._take(self.behind.go_on().rows)
        assert not len(self.behind.state)

    @property
    def by_group(self) -> dict[tuple[int, int], list[int]]:
        """What was sent for each key and window, in order."""
        found: dict[tuple[int, int], list[int]] = {}
        for key, end_us, count in self.out:
            found.setdefault((key, end_us), []).append(count)
        return found


@pytest.mark.parametrize("window", WINDOWS)
@given(moves=MOVES, rows_max=st.integers(1, 4))
def test_parts_are_the_whole(window: str, moves: list[Any], rows_max: int) -> None:
    whole, parts = Job(window, None), Job(window, rows_max)
    for each in moves:
        whole.do(*each)
        parts.do(*each)
    while parts.behind.behind_us is not None:
        parts.do("go on", None)
    assert parts.late == whole.late
    assert len(parts.behind.state) == len(whole.behind.state)
    whole.end()
    parts.end()
    if not window.startswith("kept"):
        assert parts.by_group == whole.by_group
        return
    # A record that comes between two parts is in the first result, or makes it anew: it depends on when it comes.
    assert {each: counts[-1] for each, counts in parts.by_group.items()} == {
        each: counts[-1] for each, counts in whole.by_group.items()
    }
    for counts in parts.by_group.values():
        assert counts == sorted(set(counts)), "each change is sent once"


def closing(window: str, rows_max: int) -> Job:
    """A job in which two windows of a hundred keys have just closed."""
    job = Job(window, rows_max)
    job.do("rows", [(k, at) for at in (1, 11) for k in range(100)])
    job.do("advance", 50)
    return job


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("ends", [False, True])
def test_a_part_is_small_and_windows_are_sent_in_their_order(window: str, ends: bool) -> None:
    job = Job(window, 8)
    job.do("rows", [(k, at) for at in (1, 11) for k in range(100)])
    job.out.clear()
    job._take(job.behind.finish().rows if ends else job.behind.advance(50).rows)
    sizes = [len(job.out)]
    while job.behind.behind_us is not None:
        assert ends or job.behind.behind_us == 50
        before = len(job.out)
        job.do("go on", None)
        sizes.append(len(job.out) - before)
    assert len(sizes) > 10
    assert max(sizes) <= 16, "a key group may be one too many, with all firings that a leap brings"
    whole = Job(window, None)
    whole.do("rows", [(k, at) for at in (1, 11) for k in range(100)])
    whole.out.clear()
    whole._take(whole.behind.finish().rows if ends else whole.behind.advance(50).rows)
    assert sorted(job.out, key=lambda row: row[0]) == sorted(whole.out, key=lambda row: row[0]), (
        "in order, for each key"
    )


@pytest.mark.parametrize("window", ["kept", "kept and sliding"])
def test_a_record_for_a_window_that_is_being_sent_is_in_the_first_result_or_makes_it_anew(window: str) -> None:
    job = Job(window, 8)
    job.do("rows", [(k, 8) for k in range(100)])
    job.do("advance", 21)
    before = set(job.out)
    job.do("rows", [(k, 7) for k in range(101)])
    while job.behind.behind_us is not None:
        job.do("go on", None)
    for (k, end_us), counts in job.by_group.items():
        assert counts == ([1] if k == 100 else [1, 2] if (k, end_us, 1) in before else [2])


@pytest.mark.parametrize("window", ["tumbling", "session", "kept"])
def test_what_has_left_before_a_crash_does_not_leave_again(window: str) -> None:
    job = closing(window, 8)
    for _ in range(5):
        job.do("go on", None)
    job.do("crash", None)
    assert job.behind.behind_us == 50, "what is left does not wait for the next watermark"
    job.do("rows", [(k, 60) for k in range(3)])
    while job.behind.behind_us is not None:
        job.do("go on", None)
    assert len(job.out) == len(set(job.out)) == 200
