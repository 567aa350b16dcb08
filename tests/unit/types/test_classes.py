"""Records as instances of users' classes: what functions are given and what they may return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import msgspec
import pytest

import penstock as ps
from penstock.errors import TypeMismatch
from penstock.testing import collect

SCHEMA = "user string, at timestamp, day date, place struct<city: string, since: timestamp>, n int"
ROWS = [("ann", 1_500_000, 1, {"city": "Bonn", "since": 0}, 1), (None, None, None, None, None)]


class Place(msgspec.Struct):
    city: str | None
    since: datetime | None


@dataclass
class Visit:
    user: str | None
    at: datetime | None
    day: date | None
    place: Place | None
    more: list[int] = field(default_factory=list)


@dataclass
class Shown:
    user: str | None
    at: datetime | None
    days: int


class Number(msgspec.Struct):
    n: int | None
    at: int | None


@dataclass
class Wrong:
    user: str
    nobody: int


def visits() -> ps.Stream:
    return ps.stream("visits", ps.records(ROWS, schema=SCHEMA))


def test_members_are_what_their_annotations_say() -> None:
    seen: list[Visit] = []

    def look(visit: Visit) -> tuple[int]:
        seen.append(visit)
        return (1,)

    collect(visits().map(look, schema="n int"))
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    assert seen == [
        Visit("ann", zero.replace(second=1, microsecond=500_000), date(1970, 1, 2), Place("Bonn", zero)),
        Visit(None, None, None, None),
    ]


def test_a_timestamp_that_is_annotated_as_a_number_stays_one() -> None:
    def same(number: Number) -> Number:
        return number

    assert collect(visits().map(same)) == [{"n": 1, "at": 1_500_000}, {"n": None, "at": None}]


def test_a_class_that_is_returned_is_the_schema() -> None:
    def shown(visit: Visit) -> Shown:
        return Shown(visit.user, visit.at, 1)

    made = visits().filter("user IS NOT NULL").map(shown)
    assert made.schema.ddl == "user string, at timestamp, days bigint not null"
    assert collect(made) == [{"user": "ann", "at": 1_500_000, "days": 1}]


def test_many_of_a_class_are_the_schema_of_flat_map() -> None:
    def twice(visit: Visit) -> Iterator[Shown]:
        yield from [Shown(visit.user, visit.at, 1)] * 2

    assert len(collect(visits().flat_map(twice))) == 4


def test_functions_without_classes_are_given_records() -> None:
    def plain(record: object) -> int:
        return record.n  # type: ignore[attr-defined,no-any-return]

    assert [row["n"] for row in collect(visits().map(plain, schema="n int"))] == [1, None]


def test_a_member_that_is_no_column_is_refused_before_anything_starts() -> None:
    def wrong(record: Wrong) -> int:
        return 1

    with pytest.raises(TypeMismatch, match=r"'wrong': Wrong needs 'nobody', which is no column"):
        visits().map(wrong, schema="n int")
