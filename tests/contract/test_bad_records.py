"""Bad records: dead letters, skips and retries, and failures that name their operation, whatever the parallelism."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from test_engine import EVENT, WIDTHS, Distinct, bag, events, source

import penstock as ps
from penstock.connectors.memory import At
from penstock.errors import OperationFailed, PenstockError
from penstock.testing import Harness


def poison(r: Any) -> Any:
    if r.n % 5 == 0:
        raise ValueError(f"poison {r.n}")
    return r.k, r.n, r.at


@WIDTHS
def test_dead_letters_hold_exactly_the_bad_records(parallelism: int) -> None:
    rows = events(100)
    stream = source(rows=rows, partitions=2).map(poison, schema=EVENT, on_error="dead_letter")
    harness = Harness(stream.to(ps.memory(), dead_letters=ps.memory()), parallelism=parallelism)
    harness.run()
    assert bag(harness.rows()) == bag(row for row in rows if row[1] % 5)
    letters = harness.dead_letters()
    assert Counter(letter["error"] for letter in letters) == Counter(
        f"ValueError: poison {n}" for n in range(0, 100, 5)
    )
    assert {letter["operation"] for letter in letters} == {"poison"}
    assert all("in poison" in letter["traceback"] for letter in letters)
    assert harness.count("poison", "dead_letters") == 20
    assert harness.count("poison", "records_in") == harness.count("poison", "records_out") + 20


@WIDTHS
def test_skipped_records_are_counted(parallelism: int) -> None:
    harness = Harness(
        source(rows=events(100), partitions=2).map(poison, schema=EVENT, on_error="skip").to(ps.memory()),
        parallelism=parallelism,
    )
    harness.run()
    assert len(harness.rows()) == 80
    assert harness.count("poison", "skipped") == 20


@WIDTHS
def test_a_record_that_recovers_is_retried_and_kept(parallelism: int) -> None:
    attempts: Counter[int] = Counter()

    def flaky(r: Any) -> Any:
        attempts[r.n] += 1
        if attempts[r.n] <= r.n % 3:
            raise ConnectionError("again")
        return r.k, r.n, r.at

    rows = events(60)
    stream = source(rows=rows, partitions=2).map(flaky, schema=EVENT, on_error="retry")
    harness = Harness(stream.to(ps.memory()), parallelism=parallelism)
    harness.run()
    assert bag(harness.rows()) == bag(rows)
    assert harness.count("flaky", "retried") == sum(n % 3 for n in range(60))


@WIDTHS
def test_a_failure_names_the_operation_and_the_record_and_commits_nothing_more(parallelism: int) -> None:
    rows = [("a", 1, 0), At("5s"), ("b", 10, 0), At("9s")]
    harness = Harness(source(rows=rows).map(poison, schema=EVENT).to(ps.memory()), parallelism=parallelism)
    harness.advance("4s")
    assert bag(harness.rows()) == bag([("a", 1, 0)])
    with pytest.raises(OperationFailed, match=r"(?s)operation 'poison'.*poison 10.*\"k\":\"b\".*Traceback") as failure:
        harness.run()
    assert "in poison" in failure.value.user_traceback
    assert bag(harness.rows()) == bag([("a", 1, 0)])


class Unsendable(Distinct):
    """A state that cannot travel, or a result that cannot be made."""

    def __init__(self, where: str) -> None:
        self._where = where

    def add(self, state: Any, record: Any) -> Any:
        return object() if self._where == "state" else super().add(state, record)

    def result(self, state: Any) -> int:
        raise ValueError("no result")


@WIDTHS
@pytest.mark.parametrize("where", ["state", "result"])
def test_an_aggregate_that_fails_between_records_names_its_operation(parallelism: int, where: str) -> None:
    broken = source(rows=events(5)).key_by("k").aggregate(name="mine", x=ps.agg.custom(Unsendable(where), type="int"))
    with pytest.raises(OperationFailed, match="operation 'mine"):
        Harness(broken.to(ps.memory()), parallelism=parallelism).run()


@WIDTHS
def test_a_sum_that_does_not_fit_names_its_operation(parallelism: int) -> None:
    rows = [("a", (1 << 63) - 1, 0), ("a", 1, 0)]
    total = source(rows=rows).key_by("k").aggregate(name="mine", x=ps.agg.sum("n"))
    with pytest.raises(PenstockError, match=r"operation 'mine.*does not fit a bigint"):
        Harness(total.to(ps.memory()), parallelism=parallelism).run()


def test_a_branch_may_not_take_the_name_of_the_dead_letters() -> None:
    with pytest.raises(PenstockError, match="dead_letters"):
        source(rows=[]).split(dead_letters=ps.col("n").is_null())


def test_a_sink_may_not_take_the_name_of_the_dead_letters() -> None:
    stream = source(rows=events(10)).map(poison, schema=EVENT, on_error="dead_letter")
    with pytest.raises(PenstockError, match="dead_letters"):
        Harness(stream.to(ps.memory(), name="dead_letters"))
