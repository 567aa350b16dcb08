"""Real servers that are away for minutes, in time that passes at once: what waits is bounded, and all of it arrives."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.connectors import background, patience
from penstock.connectors.background import BackgroundWriter
from penstock.connectors.base import WriterContext
from penstock.connectors.redis.link import Place
from penstock.errors import InvalidOption, OperationFailed, SinkFailed
from penstock.operators.errors import Errors
from penstock.operators.stateless.lookup import Lookup
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster
from penstock.types import Schema
from services.postgres import PASSWORD as POSTGRES_PASSWORD
from services.redis import PASSWORD as REDIS_PASSWORD
from waiting import wait_for

S = 1_000_000
SCHEMA = Schema.parse("k string, n bigint")
OLD_LIMIT_S = 20.0
"""What the most patient of the sinks waited before."""


class Minutes:
    """The time that the patience of this process goes by: every question takes some seconds, until ``stop_s``."""

    def __init__(self, stop_s: float) -> None:
        self.stop_s = stop_s
        self.now_s = 0.0
        self.asked = 0

    def __call__(self) -> float:
        self.now_s = min(self.now_s + 4.0, max(self.now_s, self.stop_s))
        self.asked += 1
        return self.now_s


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Minutes]:
    def passing(stop_s: float) -> Minutes:
        clock = Minutes(stop_s)
        monkeypatch.setattr(patience, "_clock", clock)
        monkeypatch.setattr(patience, "BACK_OFF_S", 0.001)
        monkeypatch.setattr(patience, "BACK_OFF_MAX_S", 0.004)
        return clock

    return passing


@pytest.fixture(params=["postgres", "redis"])
def served(request: pytest.FixtureRequest) -> tuple[Any, Callable[..., Any], Callable[[], list[int]]]:
    """A server, what makes its sink, and what the server has."""
    server: Any = request.getfixturevalue(f"{request.param}_server")
    if request.param == "postgres":
        return (
            server,
            lambda **options: ps.postgres(server.dsn, "outage", key="k", **options).sink(),
            lambda: [n for (n,) in server.execute("SELECT n FROM outage ORDER BY 1")],
        )
    return (
        server,
        lambda **options: ps.redis(server.url, key="k", prefix="outage", **options).sink(),
        lambda: sorted(int(server.client.hget(name, "n")) for name in server.client.scan_iter("outage:*")),
    )


def commit(writer: Any, epoch: int, *numbers: int) -> bytes:
    writer.write([SCHEMA.record_type(str(n), n) for n in numbers])
    writer.prepare(epoch)
    snapshot = writer.snapshot(epoch)
    writer.commit(epoch)
    return snapshot


def test_a_server_that_is_away_for_minutes_is_waited_for_and_then_gets_everything(
    served: Any, minutes: Callable[[float], Minutes]
) -> None:
    server, make, found = served
    writer = make().writer(SCHEMA, WriterContext("job", "store", 0, 1, "minutes"))
    commit(writer, 1, 1)
    writer.finish()
    clock = minutes(280.0)
    server.stop()
    commit(writer, 2, 2, 3)
    wait_for(lambda: clock.now_s >= clock.stop_s and clock.asked > 80, "minutes have passed")
    assert clock.now_s > 10 * OLD_LIMIT_S
    commit(writer, 3, 4)  # the job goes on meanwhile
    server.restart()
    writer.finish()
    assert found()[-3:] == [2, 3, 4]
    writer.close()


def test_a_worker_that_begins_while_its_tables_are_away_waits_for_them(
    postgres_server: Any, minutes: Callable[[float], Minutes]
) -> None:
    postgres_server.execute("CREATE TABLE begins (k text PRIMARY KEY, n bigint)", "INSERT INTO begins VALUES ('a', 1)")
    place = ps.postgres(postgres_server.dsn, "begins", key="k")
    sink, table = place.sink(), ps.table(place, key="k")
    clock, done = minutes(280.0), list[Any]()

    def begin() -> None:
        done.append(table.finder().get("a"))
        done.append(sink.writer(SCHEMA, WriterContext("job", "store", 0, 1, "begins")))

    postgres_server.stop()
    thread = threading.Thread(target=begin)
    thread.start()
    wait_for(lambda: clock.now_s >= clock.stop_s, "minutes have passed")
    assert not done
    postgres_server.restart()
    thread.join()
    assert done[0].n == 1
    done[1].close()


def test_after_its_time_the_job_fails_and_can_be_resumed(served: Any, minutes: Callable[[float], Minutes]) -> None:
    server, make, found = served
    writer = make(retry="40s").writer(SCHEMA, WriterContext("job", "store", 0, 1, "over"))
    clock = minutes(1_000.0)
    server.stop()
    snapshot = commit(writer, 1, 50)
    with pytest.raises(SinkFailed, match=r"operation 'store'.*can be resumed") as caught:
        writer.finish()
    assert OLD_LIMIT_S < clock.now_s < 60.0
    assert POSTGRES_PASSWORD not in str(caught.value)
    assert REDIS_PASSWORD not in str(caught.value)
    server.restart()
    successor = make().writer(SCHEMA, WriterContext("job", "store", 0, 1, "over"))
    successor.restore(1, snapshot)
    successor.commit(1)
    successor.finish()
    assert 50 in found()
    successor.close()


def test_a_lookup_waits_for_minutes_and_its_worker_says_that_it_is_there(
    redis_server: Any, minutes: Callable[[float], Minutes]
) -> None:
    schema = Schema.parse("id int")
    table = ps.redis_table(redis_server.url, schema="id int, n int", key="id", prefix="away", layout="string")
    operator = Lookup(table, "id").build(schema, Errors("lookup"))
    clock, found, signs = minutes(280.0), list[Any](), list[float]()

    def look_up() -> None:
        with patience.signing(lambda: signs.append(clock.now_s)):
            found.extend(operator.process([schema.record_type(1)]).rows)

    redis_server.stop()
    thread = threading.Thread(target=look_up)
    thread.start()
    wait_for(lambda: clock.now_s >= clock.stop_s, "minutes have passed")
    assert not found
    redis_server.restart()
    redis_server.client.set("away:1", "7")
    # The server is empty for a moment: who asks then finds nothing, which is an answer.
    thread.join()
    assert [row.n for row in found] in ([7], [])
    assert len(signs) >= 280 / 4 - 2, "in every pause"
    table._place, clock.stop_s = Place("redis://127.0.0.1:9/0", "a table", 40.0), 1_000.0
    hasty = Lookup(table, "id").build(schema, Errors("lookup"))
    with pytest.raises(OperationFailed, match=r"127\.0\.0\.1:9"):
        hasty.process([schema.record_type(1)])


def test_a_job_whose_table_is_away_for_minutes_stops_reading_and_drains(
    postgres_server: Any, minutes: Callable[[float], Minutes], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_max, rate, total = 100, 100, 2_000
    monkeypatch.setattr(background, "QUEUED_ROWS_MAX", rows_max)
    numbers = ps.generator({"n": ps.fields.sequence()}, rate=rate, total=total, format="columns", partitions=2)
    pipeline = ps.stream("numbers", numbers).to(ps.postgres(postgres_server.dsn, "drained"), name="rows")
    cluster = Cluster(Plan.of(pipeline.graph(), Options.of(parallelism=2, queue_records=100)))

    def read() -> int:
        figures = [each for worker in cluster.workers for each in worker.figures()]
        return sum(each.records_in for each in figures if each.operation == "numbers")

    def writers() -> list[BackgroundWriter]:
        sinks = [sink.writer for worker in cluster.workers for unit in worker.units for sink in unit.chain.sinks]
        return [each for each in sinks if isinstance(each, BackgroundWriter)]

    def some_time(condition: Callable[[], bool]) -> bool:
        cluster.run_until(cluster.now_us + S)
        return condition()

    cluster.run_until(cluster.now_us + 2 * S)
    wait_for(lambda: not any(each._queue for each in writers()), "the first rows are in the table")
    before, clock = read(), minutes(280.0)
    postgres_server.stop()
    cluster.run_until(cluster.now_us + 10 * S)
    wait_for(lambda: clock.now_s >= clock.stop_s, "minutes have passed")
    stopped = read()
    for _ in range(3):
        cluster.run_until(cluster.now_us + 5 * S)
        assert read() == stopped, "the source has stopped"
    assert before < stopped < total
    bound = rows_max + 2 * rate  # the epoch that goes beyond it is the last one
    assert all(each._queued_rows <= bound for each in writers())
    assert cluster.error is None
    postgres_server.restart()
    wait_for(lambda: some_time(lambda: cluster.ended), "the job has ended")
    assert cluster.error is None
    found = Counter(n for (n,) in postgres_server.execute("SELECT n FROM drained"))
    assert found == Counter(range(total))


def test_the_option_is_a_duration(postgres_server: Any, redis_server: Any) -> None:
    for make in (
        lambda retry: ps.postgres(postgres_server.dsn, "t", retry=retry),
        lambda retry: ps.redis(redis_server.url, key="k", retry=retry),
        lambda retry: ps.redis_table(redis_server.url, schema="k int, v int", key="k", retry=retry),
        lambda retry: ps.webhook("http://h", retry=retry),
    ):
        make("2m")
        make(0)
        with pytest.raises(InvalidOption, match="retry"):
            make("often")
