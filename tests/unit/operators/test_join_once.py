"""The join that uses every record up, step by step: when pairs come, what waits, what expires, what is stored."""

from __future__ import annotations

from typing import Any

from states import restore, snapshot

from penstock.operators import Errors, Match, Side, Tag, join
from penstock.operators.keyed.match_once import LONG_QUEUE, MatchOnceOperator
from penstock.types import Record, Schema, record_dict

LEFT = Schema.parse("k string, a bigint, t timestamp")
RIGHT = Schema.parse("k string, b string, u timestamp")
Row = tuple[Any, ...]


class Sides:
    """The parts of one join; rows of either side go in."""

    def __init__(self, within_us: int = 10, **options: Any) -> None:
        of = join("k", within=f"{within_us}us", left_time="t", right_time="u", match="once", **options)
        self._schemas = {Side.LEFT: LEFT, Side.RIGHT: RIGHT}
        self._tags = {
            side: Tag(of, LEFT, RIGHT, side).build(schema, Errors("join")) for side, schema in self._schemas.items()
        }
        match = Match(of, LEFT, RIGHT).build(of.tagged(LEFT, RIGHT), Errors("join"))
        assert isinstance(match, MatchOnceOperator)
        self.match = match
        self.late = 0

    def left(self, *rows: Row) -> None:
        self._add(Side.LEFT, rows)

    def right(self, *rows: Row) -> None:
        self._add(Side.RIGHT, rows)

    def _add(self, side: Side, rows: tuple[Row, ...]) -> None:
        records = [self._schemas[side].record_type(*row) for row in rows]
        made = self.match.process(self._tags[side].process(records).rows)
        assert made.rows == [], "nothing comes before its time has passed"
        self.late += made.late

    def advance(self, event_time_us: int) -> list[Row]:
        return plain(self.match.advance(event_time_us).rows)

    def finish(self) -> list[Row]:
        return plain(self.match.finish().rows)


def plain(rows: list[Record]) -> list[Row]:
    return [tuple(record_dict(row).values()) for row in rows]


def test_a_record_is_paired_once_with_the_first_that_waits() -> None:
    sides = Sides()
    sides.right(("x", "p", 101), ("x", "q", 102), ("y", "r", 101))
    sides.left(("x", 1, 103), ("x", 2, 100))
    assert sides.advance(103) == [("x", 2, 100, "p", 101)]
    assert sides.advance(104) == [("x", 1, 103, "q", 102)]
    assert sides.match.held_records == 1
    assert sides.finish() == []


def test_a_record_at_the_watermark_is_not_taken_as_others_of_its_time_may_come() -> None:
    sides = Sides()
    sides.left(("x", 2, 100))
    sides.right(("x", "p", 100))
    assert sides.advance(100) == []
    sides.left(("x", 1, 100))
    assert sides.advance(101) == [("x", 1, 100, "p", 100)]


def test_at_equal_times_the_left_comes_first_then_other_columns_nulls_first() -> None:
    sides = Sides()
    sides.right(("x", "q", 100), ("x", "p", 100), ("x", None, 100))
    sides.left(("x", 5, 100), ("x", None, 100), ("x", -5, 100))
    assert sides.advance(101) == [
        ("x", None, 100, None, 100),
        ("x", -5, 100, "p", 100),
        ("x", 5, 100, "q", 100),
    ]


def test_what_is_further_apart_than_within_is_not_paired() -> None:
    sides = Sides(within_us=10)
    sides.left(("x", 1, 100), ("x", 2, 101))
    sides.right(("x", "p", 111), ("x", "q", 111))
    assert sides.advance(200) == [("x", 2, 101, "p", 111)]
    assert sides.match.held_records == 0, "the other two have expired"


def test_outer_records_come_alone_once_they_expire_in_the_order_of_time() -> None:
    sides = Sides(within_us=8, how="left")
    sides.left(("x", 1, 100), ("y", 2, 101), (None, 3, 102))
    assert sides.advance(103) == [(None, 3, 102, None, None)]
    assert sides.advance(108) == []
    sides.right(("y", "p", 109), ("x", "q", 109))
    assert sides.advance(110) == [("x", 1, 100, None, None), ("y", 2, 101, "p", 109)]
    sides.left(("z", 4, 112))
    assert sides.finish() == [("z", 4, 112, None, None)]
    assert sides.finish() == []


def test_late_records_are_counted_and_not_joined() -> None:
    sides = Sides(lateness="5us")
    sides.left(("x", 1, 100))
    assert sides.advance(104) == []
    sides.right(("x", "late", 98), ("x", "p", 99))
    assert sides.late == 1
    assert sides.advance(106) == [("x", 1, 100, "p", 99)]
    assert sides.advance(90) == []
    assert sides.match.watermark_us == 101


def test_many_records_of_a_key_wait_in_line() -> None:
    count = 3 * LONG_QUEUE
    sides = Sides(within_us=1000)
    sides.left(*(("x", i, i) for i in range(count)))
    assert sides.advance(count) == []
    sides.right(*(("x", str(i), count + i) for i in range(count)))
    assert sides.advance(2 * count) == [("x", i, i, str(i), count + i) for i in range(count)]
    assert sides.match.held_records == 0


def test_changes_hold_only_what_came_and_what_was_used_since() -> None:
    sides = Sides()
    sides.left(*(("x", i, i % 5) for i in range(1000)))
    full = snapshot(sides.match, True)
    assert len(snapshot(sides.match, False)) < 40, "nothing has changed"
    sides.right(("x", "p", 3), ("y", "q", 7))
    assert sides.advance(5) == [("x", 0, 0, "p", 3)]
    delta = snapshot(sides.match, False)
    assert len(delta) < 50
    again = Sides()
    restore(again.match, [full, delta])
    assert again.match.held_records == sides.match.held_records == 1000
    assert len(snapshot(again.match, False)) < 40, "what is restored is not a change"
    for each in (again, sides):
        each.right(("x", "r", 9))
    assert again.finish() == sides.finish() == [("x", 5, 0, "r", 9)]


def test_what_came_out_before_a_snapshot_does_not_come_again() -> None:
    sides = Sides(how="left")
    sides.left(("x", 1, 100), ("y", 2, 100), ("z", 3, 130), (None, 4, 100))
    full = snapshot(sides.match, True)
    sides.right(("x", "p", 100))
    assert len(sides.advance(120)) == 3
    again = Sides(how="left")
    restore(again.match, [full, snapshot(sides.match, False)])
    assert again.match.held_records == 1
    assert again.finish() == [("z", 3, 130, None, None)]


def test_the_end_leaves_nothing_behind() -> None:
    sides = Sides(how="left")
    sides.left(("x", 1, 100), ("y", 2, 100))
    full = snapshot(sides.match, True)
    sides.right(("x", "p", 100))
    assert len(sides.finish()) == 2
    again = Sides(how="left")
    restore(again.match, [full, snapshot(sides.match, False)])
    assert again.match.held_records == 0
    assert again.finish() == []
