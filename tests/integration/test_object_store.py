"""Output and checkpoint in an object store that takes 100 ms for each call, on real Spark: exact through kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from penstock_test_store import StoreServer

import penstock as ps
from penstock.runtime.status import read_status, status_dir

pytestmark = pytest.mark.spark

DELAY_S = 0.1
RATE = 1_000
Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def server() -> Iterator[StoreServer]:
    server = StoreServer(DELAY_S)
    yield server
    server.close()


def pipeline(url: str) -> ps.Pipeline:
    fields = {"n": ps.fields.sequence(), "k": ps.fields.integers(0, 49)}
    stream = ps.stream("numbers", ps.generator(fields, rate=RATE, format="columns", partitions=2))
    counted = stream.key_by("k").count(name="counted")
    return stream.to(ps.files(f"{url}/out"), name="rows") + counted.to(ps.files(f"{url}/counts"), name="counts")


def rows_of(server: StoreServer, below: str) -> list[dict[str, int]]:
    parts = [name for name in server.names(f"/bucket/{below}/") if name.startswith("part-")]
    return [json.loads(line) for name in parts for line in server.objects[f"/bucket/{below}/{name}"].splitlines()]


def assert_exact(server: StoreServer, read: Sequence[int]) -> None:
    """Every record that was read is there once; a key's counts are each there once, up to how often it came."""
    rows = rows_of(server, "out")
    exact = [offset * len(read) + partition for partition, count in enumerate(read) for offset in range(count)]
    assert Counter(row["n"] for row in rows) == Counter(exact)
    of_key = Counter(row["k"] for row in rows)
    counts = rows_of(server, "counts")
    last = {row["k"]: max(each["count"] for each in counts if each["k"] == row["k"]) for row in counts}
    assert last == of_key
    assert max(Counter((row["k"], row["count"]) for row in counts).values()) == 1
    for below in ("out", "counts"):
        assert [name for name in server.names(f"/bucket/{below}/") if not name.startswith("part-")] == []


def parts(server: StoreServer) -> int:
    return sum(name.startswith("part-") for name in server.names("/bucket/out/"))


def workers(path: Path) -> dict[int, int]:
    """Processes of a job's workers, as its status file has them."""
    status = read_status(path)
    return {worker.worker: worker.pid for worker in status.workers} if status is not None else {}


def has_resumed(path: Path) -> bool:
    status = read_status(path)
    return status is not None and bool(status.resumed_us)


SCRIPT = """
import sys
sys.path[:0] = [{tests!r}, {support!r}]
import penstock as ps
from test_object_store import OPTIONS, pipeline
ps.run(pipeline({url!r}), checkpoint={url!r} + "/checkpoint", **OPTIONS)
"""
OPTIONS: dict[str, Any] = {"parallelism": 2, "name": "objects", "epoch": "500ms"}


def test_kills_of_driver_and_worker_and_an_outage_lose_nothing_and_leave_no_garbage(
    server: StoreServer, eventually: Eventually
) -> None:
    url, here = f"{server.url}/bucket", Path(__file__)
    script = SCRIPT.format(tests=str(here.parent), support=str(here.parents[1] / "support"), url=url)
    first = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        status = status_dir() / f"objects-{first.pid}.json"
        eventually(status.exists)  # Spark takes its time on a busy machine
        eventually(lambda: parts(server) >= 2)
        before = workers(status)[1]
        os.kill(before, signal.SIGKILL)
        eventually(lambda: workers(status).get(1, before) != before and has_resumed(status))
        server.is_away = True
        calls = server.calls.total()
        eventually(lambda: server.calls.total() > calls + 5)  # it is asked again and again
        server.is_away, seen = False, parts(server)
        eventually(lambda: parts(server) > seen)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    status.unlink(missing_ok=True)
    report = ps.run(pipeline(url), checkpoint=f"{url}/checkpoint", duration="1s", **OPTIONS)
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)
    assert report.total is not None
    read = report.offsets["numbers"]
    assert report.total.events_in == sum(read)
    assert_exact(server, read)
    assert len(server.names("/bucket/checkpoint/commits/")) <= 3
    assert server.names("/bucket/checkpoint/runs/") == ["000002"]
    assert len(server.names("/bucket/checkpoint/snapshots/")) < 100
