"""Owners of keys: stable for ever, balanced, and the same wherever they are computed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.errors import InvalidOption, TypeMismatch, UnknownColumn
from penstock.operators import Partitioner, check_keys
from penstock.operators import keys as module
from penstock.operators.keys import KEY_GROUPS, PARALLELISM_MAX, key_group, owner
from penstock.types import Schema


@pytest.mark.parametrize(
    ("key", "group"),
    [
        ("a", 3737),
        ("é", 4061),
        ("", 3173),
        (None, 3389),
        (0, 3981),
        (-1, 0),
        (1099511627776, 2962),
        (True, 3207),
        (b"a", 1793),
        (("a", 1), 2836),
        (("a", None), 2354),
    ],
)
def test_groups_never_change(key: Any, group: int) -> None:
    """State is kept by group: another hash would send keys away from their state."""
    assert key_group(key) == group


def test_every_instance_owns_its_share() -> None:
    keys = [f"user-{i}" for i in range(20_000)]
    for instances in (1, 2, 3, 5, 128):
        owners = Counter(owner(key, instances) for key in keys)
        assert set(owners) == set(range(instances))
        assert max(owners.values()) < 2.5 * len(keys) / instances


def test_groups_are_dealt_out_in_ranges() -> None:
    for instances in range(1, PARALLELISM_MAX + 1):
        owners = [group * instances // KEY_GROUPS for group in range(KEY_GROUPS)]
        assert owners == sorted(owners)
        assert set(owners) == set(range(instances))


def test_keys_are_checked() -> None:
    schema = Schema.parse("a string, x double, w array<int>, at timestamp")
    assert check_keys(schema, ["at", "a"]) == ("at", "a")
    for bad, error in [
        ([], InvalidOption),
        (["a", "a"], InvalidOption),
        (["b"], UnknownColumn),
        (["x"], TypeMismatch),
        (["a", "w"], TypeMismatch),
    ]:
        with pytest.raises(error):
            check_keys(schema, bad)


def test_the_cache_of_owners_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_KEYS_MAX", 10)
    schema = Schema.parse("n bigint")
    rows = [schema.record_type(n % 100) for n in range(1000)]
    dealer = Partitioner(("n",), 3)
    parts = dealer.rows(rows)
    assert len(dealer._owners) == 10
    assert parts == [[row for row in rows if owner(row.n, 3) == i] for i in range(3)]
