"""Places for samples that are away, come back, or ask for a password."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

import penstock as ps
from metric_servers import SECRET, Influx, needs_influx
from penstock.errors import InvalidOption
from penstock.runtime.metrics_out.feeder import Feeder
from penstock.runtime.metrics_out.influx import InfluxWriter
from penstock.runtime.metrics_out.samples import Buckets, OutletFigures, Point, Snapshot, Tags
from waiting import WAIT_S, wait_for

pytestmark = pytest.mark.spark


def snapshot(at_us: int, operation: str = "x") -> Snapshot:
    point = Point("operation", {"operation": operation}, {"queue_records": float(at_us)})
    return Snapshot(at_us, Tags("ads", "ads-1", "9.9"), [point], [], [], 0, False, Buckets([], 0, 0.0))


@pytest.fixture
def influx(tmp_path: Path) -> Iterator[Callable[..., Influx]]:
    opened: list[Influx] = []

    def open_one(**options: bool) -> Influx:
        opened.append(Influx(tmp_path / f"influx-{len(opened)}", **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@needs_influx
def test_any_name_comes_back_from_influx_as_it_was(influx: Callable[..., Influx]) -> None:
    server = influx()
    server.do("CREATE DATABASE mydb")
    writer = InfluxWriter(server.outlet, {})
    names = ["a b", "a,b", "a=b", 'a"b', "a\\b", "a\\,b", "größe", "'", "a\\ b"]
    for at_us, name in enumerate(names, 1):
        writer.write(snapshot(at_us, name))
    writer.close()
    found = server.series('SELECT "queue_records" FROM "penstock_operation" GROUP BY "operation"')
    assert sorted(each["tags"]["operation"] for each in found) == sorted(names)


@needs_influx
def test_samples_wait_while_influx_is_away_and_arrive_when_it_is_back(influx: Callable[..., Influx]) -> None:
    server = influx()
    server.do("CREATE DATABASE mydb")
    feeder = Feeder("influx", InfluxWriter(server.outlet, {}))
    feeder.offer(snapshot(1))
    wait_for(lambda: feeder.figures.sent == 1)
    server.stop()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # for what other tests have left behind
        for at_us in range(2, 12):
            feeder.offer(snapshot(at_us))
        wait_for(lambda: feeder.figures.failed >= 2)
    assert ["The job goes on" in str(each.message) for each in caught] == [True]
    server.start()
    wait_for(lambda: feeder.figures.sent == 11)
    feeder.close(monotonic() + WAIT_S)
    (found,) = server.series('SELECT "queue_records" FROM "penstock_operation"')
    assert [row[1] for row in found["values"]] == list(range(1, 12))
    assert feeder.figures.dropped == 0


@needs_influx
def test_credentials_open_influx_and_are_told_to_nobody_else(influx: Callable[..., Influx]) -> None:
    server = influx(authenticate=True)
    server.do("CREATE DATABASE mydb")
    wrong = {"PENSTOCK_INFLUX_USER": "me", "PENSTOCK_INFLUX_PASSWORD": f"{SECRET}-wrong"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # for what other tests have left behind
        refused = Feeder("influx", InfluxWriter(server.outlet, wrong))
        refused.offer(snapshot(1))
        wait_for(lambda: refused.figures.dropped == 1)
        refused.close(monotonic() + WAIT_S)
    (told,) = [str(each.message) for each in caught]
    assert "HTTP 401" in told
    assert SECRET not in told
    right = {"PENSTOCK_INFLUX_USER": "me", "PENSTOCK_INFLUX_PASSWORD": SECRET}
    taken = Feeder("influx", InfluxWriter(server.outlet, right))
    taken.offer(snapshot(2))
    taken.close(monotonic() + WAIT_S)
    assert taken.figures == OutletFigures("influx", sent=1)
    (found,) = server.series('SELECT "queue_records" FROM "penstock_operation"')
    assert [row[1] for row in found["values"]] == [2]


# --- places that are gone ---------------------------------------------------------------------------------------------


def test_a_job_does_not_mind_a_server_that_is_not_there(tmp_path: Path) -> None:
    kept = ps.memory()
    numbers = ps.stream("numbers", ps.records([(n,) for n in range(1000)], schema="n bigint"))
    with warnings.catch_warnings(record=True) as caught, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        places = [f"influx:http://127.0.0.1:{taken.getsockname()[1]}/mydb", f"file:{tmp_path / 'run.jsonl'}"]
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # for what other tests have left behind
        with ps.start(numbers.to(kept), name="alone", parallelism=1, metrics=places) as job:
            report = job.wait()
    assert report is not None
    assert sorted(record.n for record in kept.rows) == list(range(1000))
    gone, written = job.metrics
    assert gone.sent == 0 < gone.failed
    assert gone.dropped == written.sent == len((tmp_path / "run.jsonl").read_text().splitlines())
    assert len([each for each in caught if "metrics to influx" in str(each.message)]) == 1


def test_a_file_that_cannot_be_written_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    numbers = ps.stream("numbers", ps.records([(1,)], schema="n bigint"))
    with pytest.raises(InvalidOption, match="No such file or directory"):
        ps.start(numbers.to(ps.memory()), metrics=f"file:{tmp_path / 'missing' / 'run.jsonl'}")
