"""Columns whose names are no identifiers of Python, in what calls functions of users by key and by time."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.testing import collect
from penstock.types import Schema

SCHEMA = Schema.parse("`the user` string, `class` int, `the time` timestamp, `the number` bigint")
ROWS = [SCHEMA.coerce((user, n % 2, n * 1_000_000, n)) for n in range(6) for user in "ab"]


def numbers() -> ps.Stream:
    return ps.stream("in", ps.records(ROWS, schema=SCHEMA))


class Sums(ps.Process):
    total = ps.state.value(int, default=0, ttl="1h")

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.total += record["the number"]
        yield record["the user"], self.total


@pytest.mark.parametrize("keys", [("the user",), ("the user", "class")])
@pytest.mark.parametrize("time", [{}, {"time": "the time"}, {"time": "the time", "order": "time"}])
def test_a_process_function_has_keys_and_times_of_any_name(keys: tuple[str, ...], time: dict[str, Any]) -> None:
    out = numbers().key_by(*keys).process(Sums, schema="`a user` string, total bigint", **time)
    found = collect(out)
    totals = [max(row["total"] for row in found if row["a user"] == user) for user in "ab"]
    assert totals == [15 if len(keys) == 1 else 9] * 2


def test_calls_of_a_key_of_any_name_stay_in_order() -> None:
    async def call(record: Any) -> Any:
        return record["the user"], record["the number"]

    out = numbers().key_by("the user").map_async(call, schema="k string, n bigint", ordered=False)
    found = [(row["k"], row["n"]) for row in collect(out)]
    for user in "ab":
        assert [n for k, n in found if k == user] == list(range(6))
