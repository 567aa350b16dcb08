"""Enrichment from Redis: a real server for every run, both forms alike, and no server left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import psutil
import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.control.scheduler import START_DELAY_US
from penstock.operators import Errors
from penstock.operators.stateless.functions import Apply
from penstock.testing import Harness
from penstock_bench.engines import RunOptions, open_engine, redis_server, subject
from penstock_bench.engines.redis_server import RedisMissing, serving
from penstock_bench.foreign.programs.queries import query
from penstock_bench.meter.runner import measure
from penstock_bench.meter.subject import Came
from penstock_bench.workloads import Comparison, lookup, replay
from penstock_bench.workloads.lookup import LOOKUP

RECORDS, START_US = 3_000, 1_700_000_000_000_000
needs_redis = pytest.mark.skipif(redis_server.missing() is not None, reason=redis_server.missing() or "")


@pytest.fixture
def server() -> Iterator[str]:
    with serving(lookup.TABLE):
        yield lookup.address()


def _servers() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True) if p.name() == redis_server.SERVER}


def test_nine_of_ten_users_are_known() -> None:
    found = list(lookup.expected(LOOKUP.source(200, total=RECORDS).records(0, RECORDS, START_US)).values())
    assert 0.05 < found.count(None) / RECORDS < 0.15
    assert len(set(found)) == 25
    assert len(lookup.TABLE) == 9_000


def test_without_a_server_the_pipeline_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(lookup.ADDRESS, raising=False)
    with pytest.raises(lookup.RedisNotRunning, match="penstock bench run lookup"):
        LOOKUP.pipeline(100, ps.memory(), seconds=1)


def test_a_server_that_is_not_installed_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RedisMissing, match="apt-get install redis-server"), serving({}):
        pass


@needs_redis
def test_forms_agree_and_are_exact(server: str) -> None:
    source = LOOKUP.source(200, total=RECORDS)
    records = source.records(0, RECORDS, START_US)
    operation = Apply(lookup.enrich(server))
    operator = operation.build(source.schema, Errors("segment"))
    schema = operation.bind(source.schema)
    rows = operator.process(records).rows
    batch = operator.process_batch(source.schema.to_batch(records))
    assert schema.to_rows(batch.columns) == rows
    assert batch.fallbacks == 0
    assert {row.number: row.segment for row in rows} == lookup.expected(records)


@needs_redis
def test_a_micro_batch_is_one_round_trip(server: str) -> None:
    client = lookup.client(server)
    before = client.info("commandstats")
    found = lookup.segments(server, [1, 1, *range(2, lookup.MGET_KEYS * 2), 10])
    after = client.info("commandstats")
    assert found[:2] == [lookup.SEGMENT_OF_USER[1].encode()] * 2
    assert found[-1] is None
    assert after["cmdstat_mget"]["calls"] - before.get("cmdstat_mget", {"calls": 0})["calls"] == 3
    assert lookup.segments(server, []) == []


@needs_redis
def test_the_client_stays_where_it_is(server: str) -> None:
    function = lookup.enrich(server)
    record = LOOKUP.source(1, total=1).records(0, 1, START_US)[0]
    expected = function(record)
    sent = cloudpickle.dumps(function)
    assert b"ConnectionPool" not in sent
    assert cloudpickle.loads(sent)(record) == expected


@needs_redis
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_whole_job_is_exact(server: str, parallelism: int) -> None:
    harness = Harness(LOOKUP.pipeline(200, ps.memory(), seconds=5, partitions=parallelism), parallelism=parallelism)
    start_us = harness.now_us + START_DELAY_US
    harness.run()
    expected = LOOKUP.expected(replay(LOOKUP.source(200, total=1_000), start_us))
    assert LOOKUP.compare(expected, harness.rows(), parallelism) == Comparison()


@needs_redis
def test_the_query_in_plain_python_is_exact(server: str) -> None:
    wanted = subject("lookup")
    source = wanted.input(500.0, None, total=RECORDS)
    found = query(wanted.specification())
    rows = [json.loads(row) for r in source.records(0, RECORDS, START_US) for row in found.rows(wanted.line(r))]
    timeline, comparison = wanted.judge(source, Came([(7, row) for row in rows], 0, START_US))
    assert comparison.exact
    assert timeline.seen_us.tolist() == [7] * RECORDS


@needs_redis
def test_the_server_runs_as_long_as_its_context_also_if_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lookup.ADDRESS, "elsewhere:1")
    before = _servers()
    pids = set()

    def interrupted() -> None:
        with serving({b"key": b"value"}) as settings:
            pids.update(_servers() - before)
            assert settings["redis.save"] == ""
            assert lookup.client(lookup.address()).get("key") == b"value"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (pid,) = pids
    assert not psutil.pid_exists(pid)
    assert os.environ[lookup.ADDRESS] == "elsewhere:1"


@needs_redis
def test_a_run_brings_its_own_server_and_names_it_in_the_results() -> None:
    before = _servers()
    row, found = measure(open_engine("plain"), subject("lookup"), 500.0, 1.0, RunOptions(warm_up_s=0.0), "test")
    assert found.found.exact
    assert (row.events, row.lost, row.wrong, row.results) == (500, 0, 0, 500)
    assert str(row.settings[redis_server.SERVER]).count(".") == 2
    assert _servers() == before
