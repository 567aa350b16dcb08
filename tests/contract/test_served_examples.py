"""Examples that talk to servers, run on those of the tests."""

from __future__ import annotations

import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.runtime.job import plan_of
from penstock.testing.cluster import Cluster
from waiting import WAIT_S

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_redis_follows_postgresql(postgres_server: Any, redis_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTGRES_DSN", postgres_server.dsn)
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    spec = spec_from_file_location("example_cdc_to_redis", EXAMPLES / "cdc_to_redis.py")
    assert spec is not None
    assert spec.loader is not None
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example.time, "sleep", lambda _: None)
    cluster = Cluster(plan_of(example.pipeline, parallelism=2, epoch="100ms"))
    advance(cluster, lambda: redis_server.client.exists("order:1") == 1)  # the snapshot
    example.trade(60)
    postgres_server.execute("INSERT INTO orders (id, customer) VALUES (1000000, 'last')")
    advance(cluster, lambda: redis_server.client.exists("order:1000000") == 1)
    cluster.drain()
    cluster.run_until(1 << 62)
    rows = postgres_server.execute("SELECT id, customer, coalesce(pieces, 0) FROM orders")
    client = redis_server.client
    found = [client.hgetall(name) for name in client.scan_iter("order:*")]
    assert sorted((int(each["id"]), each["customer"], int(each.get("pieces", 0))) for each in found) == sorted(rows)
    ordered = {name: int(client.hget(name, "count")) for name in client.scan_iter("ordered:*")}
    assert sum(ordered.values()) == 2 + 60 + 1
    assert len((EXAMPLES / "cdc_to_redis.py").read_text().splitlines()) <= 60
    assert isinstance(example.pipeline, ps.Pipeline)


def advance(cluster: Cluster, until: Any) -> None:
    """Let the time of the job go on with that of the servers, until something has come about."""
    deadline = time.monotonic() + WAIT_S
    while not until():
        assert time.monotonic() < deadline
        cluster.run_until(cluster.now_us + 10_000)
