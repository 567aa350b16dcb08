"""Owners of keys: stable for ever, balanced, and the same wherever they are computed."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.memory import At
from penstock.errors import InvalidOption, TypeMismatch, UnknownColumn
from penstock.operators import Partitioner, check_keys
from penstock.operators import keys as module
from penstock.operators.keys import KEY_GROUPS, PARALLELISM_MAX, key_group, owned_groups, owner
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster
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
        owned = [owned_groups(instance, instances) for instance in range(instances)]
        assert all(owned)
        assert owners == [instance for instance, groups in enumerate(owned) for _ in groups]
        assert [group for groups in owned for group in groups] == list(range(KEY_GROUPS))


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


def test_decimals_are_keys_in_both_forms() -> None:
    schema = Schema.parse("p decimal(6,2), k string")
    values = [Decimal("1.50"), Decimal("-0.00"), Decimal("0.00"), None, Decimal("-3.25")]
    rows = [schema.record_type(value, "x") for value in values]
    for keys in (("p",), ("p", "k")):
        dealt = Partitioner(keys, 7).rows(rows)
        columns = [schema.to_rows(part) for part in Partitioner(keys, 7).columns(schema.to_batch(rows))]
        assert columns == dealt
    assert key_group(Decimal("-0.00")) == key_group(Decimal("0.00"))


def test_a_job_by_decimal_keys_survives_crashes() -> None:
    rows = [(Decimal(i % 7).scaleb(-1), i * 10_000) for i in range(200)]
    parts = [[each for i in range(0, 200, 10) for each in (At(i / 100), *rows[i : i + 10])]]
    stream = ps.stream("in", ps.records(partitions=parts, schema="p decimal(4,1), at timestamp"))
    counts, sink, firsts = stream.key_by("p").window("1s", on="at").count(), ps.memory(), ps.memory()
    pipeline = counts.to(sink) + stream.drop_duplicates("p").to(firsts)
    options = Options.of(name="test", parallelism=2, epoch="100ms")
    cluster = Cluster(Plan.of(Graph.check(pipeline.nodes()), options, ps.memory()))
    for moment_us in (350_000, 900_000, 1_450_000):
        cluster.run_until(cluster.start_us + moment_us)
        cluster.crash(0)
    cluster.run_until(1 << 62)
    assert cluster.error is None
    expected = Counter((p, at // 1_000_000 * 1_000_000) for p, at in rows)
    assert {(row.p, row.window_start): row.count for row in sink.rows} == expected
    assert sorted(row.p for row in firsts.rows) == sorted({p for p, _ in rows})
