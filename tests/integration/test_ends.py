"""Real servers at both ends of a job on real Spark: exact through killed workers and a second run."""

from __future__ import annotations

import http.client
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.runtime.job import Job
from penstock.testing.servers import free_port
from waiting import WAIT_S

pytestmark = pytest.mark.spark


def pids(job: Job) -> dict[int, int]:
    return {worker.worker: worker.pid for worker in job.status().workers}


class Sender:
    """Posts numbered lines; what got no answer is posted again, and may come twice."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent = 0
        self.doubtful: Counter[int] = Counter()

    def post(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=WAIT_S)
        try:
            connection.request("POST", "/", f'{{"n": {self.sent}}}\n')
            taken = connection.getresponse().status == 200
        except ConnectionRefusedError:
            return False
        except OSError:
            self.doubtful[self.sent] += 1
            return False
        finally:
            connection.close()
        self.sent += taken
        return taken


def test_changes_and_posts_reach_tables_and_streams_once_through_kills_and_a_second_run(
    tmp_path: Path, postgres_server: Any, redis_server: Any, eventually: Callable[[Callable[[], object]], None]
) -> None:
    server, dsn, url, port = postgres_server, postgres_server.dsn, redis_server.url, free_port()
    server.execute("CREATE TABLE moves (id int PRIMARY KEY, n int)")
    server.execute("INSERT INTO moves SELECT i, 0 FROM generate_series(1, 50) i")

    def pipeline() -> ps.Pipeline:
        changes = ps.stream("changes", ps.postgres(dsn, "moves"))
        posted = ps.stream("posted", ps.http(port=port, spool=tmp_path / "spool")).parse_json("n bigint")
        per_op = changes.key_by("_op").count()
        return (
            changes.select("id", "n", "_op").to(ps.postgres(dsn, "moved"), name="moved")
            + changes.select("id", "n").to(ps.redis(url, stream="moved"), name="stream")
            + per_op.to(ps.postgres(dsn, "per_op", key="_op"), name="per-op")
            + posted.to(ps.postgres(dsn, "posted"), name="posted-rows")
        )

    def rows(table: str) -> list[tuple]:
        there = server.execute(f"SELECT to_regclass('{table}')")[0][0]
        return server.execute(f"SELECT * FROM {table}") if there else []

    sender, expected = Sender(port), Counter((i, 0, "snapshot") for i in range(1, 51))
    number = 0

    def change() -> None:
        nonlocal number
        number += 1
        server.execute(f"UPDATE moves SET n = {number} WHERE id % 7 = {number % 7}")
        expected.update((i, number, "update") for i in range(1, 51) if i % 7 == number % 7)

    for run in range(2):
        options = {"parallelism": 2, "epoch": "200ms", "name": "ends", "checkpoint": tmp_path / "checkpoint"}
        with ps.start(pipeline(), **options) as job:
            # What is there before the slot is part of the snapshot, and the first epochs may be over before it is made.
            eventually(lambda: len(rows("moved")) >= 50 and len(pids(job)) == 2)
            for kill in range(2):
                for _ in range(10):
                    change()
                    eventually(sender.post)
                if run == 0:
                    lost = pids(job)[kill]
                    os.kill(lost, signal.SIGKILL)
                    eventually(lambda kill=kill, lost=lost: pids(job)[kill] != lost)  # type: ignore[misc]
            eventually(sender.post)
            eventually(lambda: len(rows("moved")) >= sum(expected.values()))
            eventually(lambda: len(rows("posted")) >= sender.sent)
            job.drain()
            report = job.wait()
        assert report.recoveries >= (2 if run == 0 else 0)
        assert Counter(rows("moved")) == expected
        entries = [entry for _, entry in redis_server.client.xrange("moved")]
        streamed = Counter((int(each["id"]), int(each["n"]) if "n" in each else None) for each in entries)
        assert streamed == Counter((i, n) for i, n, _ in expected.elements())
        assert dict(rows("per_op")) == Counter(op for _, _, op in expected.elements())
        found = Counter(n for (n,) in rows("posted"))
        assert Counter(range(sender.sent)) <= found <= Counter(range(sender.sent)) + sender.doubtful
        server.execute("INSERT INTO moves VALUES (0, 0)", "DELETE FROM moves WHERE id = 0")  # while nothing runs
        expected.update([(0, 0, "insert"), (0, None, "delete")])
