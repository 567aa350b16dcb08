"""The plugin for pytest: a user's test file, run by a pytest of its own."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import penstock as ps
from penstock.testing import CRASH

counts = ps.stream("in", ps.records(schema="k string")).key_by("k").count().to(ps.memory())


def test_counts(harness):
    h = harness(counts, inputs={"in": ["a", "b", CRASH, "a"]}, parallelism=2)
    h.run()
    assert {row["k"]: row["count"] for row in h.rows()} == {"a": 2, "b": 1}


def test_several_in_one_test(harness):
    for rows in (["a"], ["a", "a"]):
        h = harness(counts, inputs={"in": rows})
        h.run()
        h.assert_rows([("a", len(rows))])


def test_a_difference_is_told(harness):
    h = harness(counts, inputs={"in": ["a"]})
    h.run()
    h.assert_rows([("a", 2)])
"""


def test_a_users_tests_get_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess("-p", "penstock_pytest", "-p", "no:cacheprovider", "--tb=short")
    done.assert_outcomes(passed=2, failed=1)
    text = done.stdout.str()
    assert "found       {'k': 'a', 'count': 1}: count is 1, not 2" in text
    assert "penstock/testing" not in text, "a traceback ends in the user's own line"
