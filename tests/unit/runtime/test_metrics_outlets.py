"""Where samples go: places as users write them, files up to their bound, and feeding that never holds a job up."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from time import monotonic

import pytest
from test_metrics_out import SECRET, eventually, snapshot

import penstock as ps
from penstock.errors import InvalidOption
from penstock.pipeline.outlets import FileOutlet, InfluxOutlet, PrometheusOutlet, read_outlets
from penstock.runtime.job import plan_of
from penstock.runtime.metrics_out.feeder import Feeder, OutletFailed
from penstock.runtime.metrics_out.files import FileWriter, line_of
from penstock.runtime.metrics_out.samples import OutletFigures, Snapshot
from waiting import WAIT_S

# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("file:run.jsonl", FileOutlet("run.jsonl")),
        ("file:C:x", FileOutlet("C:x")),
        ("prometheus:9464", PrometheusOutlet("127.0.0.1", 9464)),
        ("prometheus:0.0.0.0:0", PrometheusOutlet("0.0.0.0", 0)),
        ("prometheus:[::1]:9464", PrometheusOutlet("::1", 9464)),
        ("influx:http://127.0.0.1:8086/mydb", InfluxOutlet(False, "127.0.0.1", 8086, "", "mydb")),
        ("influx:https://db.example/in/flux/x-1", InfluxOutlet(True, "db.example", 443, "/in/flux", "x-1")),
    ],
)
def test_places_as_users_write_them(given: str, read: object) -> None:
    assert read_outlets(given) == (read,)
    assert read_outlets([str(read)]) == (read,)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("prometeus:9464", "Did you mean 'prometheus'"),
        ("run.jsonl", "file:PATH"),
        ("file:", "file:run.jsonl"),
        ("prometheus:", "prometheus:9464"),
        ("prometheus:99999", "65535"),
        ("prometheus:a/b:1", "HOST:PORT"),
        ("influx:ftp://x/y", "http://HOST:PORT/DATABASE"),
        ("influx:http://x:8086", "DATABASE"),
        ("influx:http://x:8086/a b", "DATABASE"),
        ("influx:http://x:port/a", "HOST:PORT"),
        (["file:a", "file:a"], "each place once"),
        ([f"file:{i}" for i in range(9)], "at most 8"),
        (7, "metrics=7"),
        ([7], "metrics=7"),
    ],
)
def test_places_that_are_refused(given: object, told: str) -> None:
    numbers = ps.stream("numbers", ps.records([(1,)], schema="n bigint"))
    with pytest.raises(InvalidOption) as raised:
        plan_of(numbers.to(ps.memory()), metrics=given)
    assert told in str(raised.value)
    assert "metrics" in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        f"influx:http://me:{SECRET}@x:8086/db",
        f"influx:http://x:8086/db?token={SECRET}",
        f"influx:http://x:8086/db#{SECRET}",
        f"influx:http://me:a/b@{SECRET}@x:8086/db",
        f"influxdb:http://me:{SECRET}@x:8086/db",
    ],
)
def test_a_secret_in_an_option_is_refused_and_not_shown(given: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        read_outlets(given)
    assert SECRET not in str(raised.value)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_appended_to_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    length = len(line_of(snapshot()))
    for _ in range(2):
        writer = FileWriter(FileOutlet(str(path)), bytes_max=2 * length)
        writer.write(snapshot())
        writer.close()
    writer = FileWriter(FileOutlet(str(path)), bytes_max=2 * length)
    with pytest.raises(OutletFailed, match="not written any further") as raised:
        writer.write(snapshot())
    assert not raised.value.again
    assert path.read_bytes() == 2 * line_of(snapshot())


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="No such file or directory"):
        FileWriter(FileOutlet(str(tmp_path / "missing" / "run.jsonl")))


def test_a_full_disk_is_told() -> None:
    writer = FileWriter(FileOutlet("/dev/full"))
    with pytest.raises(OutletFailed, match="No space left on device") as raised:
        writer.write(snapshot())
    assert raised.value.again
    writer.close()


# --- feeding ----------------------------------------------------------------------------------------------------------


class Held:
    """A writer that takes nothing until it is let go, and may fail first."""

    def __init__(self, *failures: OutletFailed) -> None:
        self.go = threading.Event()
        self.failures = list(failures)
        self.taken: list[int] = []
        self.entered = threading.Event()
        self.closed = False

    def write(self, taken: Snapshot) -> None:
        self.entered.set()
        assert self.go.wait(WAIT_S)
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append(taken.at_us)

    def close(self) -> None:
        self.closed = True


def test_a_slow_place_loses_the_oldest_and_they_are_counted() -> None:
    writer = Held()
    feeder = Feeder("slow", writer, queue_max=3)
    feeder.offer(snapshot(at_us=0))
    assert writer.entered.wait(WAIT_S)
    for at_us in range(1, 11):
        feeder.offer(snapshot(at_us=at_us))  # returns although the writer stands still
    writer.go.set()
    feeder.close(monotonic() + WAIT_S)
    assert writer.taken == [0, 8, 9, 10]
    assert feeder.figures == OutletFigures("slow", sent=4, failed=0, dropped=7)
    assert writer.closed


def test_failures_are_tried_again_and_warned_of_once() -> None:
    writer = Held(OutletFailed("away", again=True), OutletFailed("no", again=False), OutletFailed("no", again=False))
    writer.go.set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # for what other tests have left behind
        feeder = Feeder("place", writer)
        for at_us in range(4):
            feeder.offer(snapshot(at_us=at_us))
        eventually(lambda: feeder.figures.sent + feeder.figures.dropped == 4)
        feeder.close(monotonic() + WAIT_S)
    assert writer.taken == [2, 3]
    assert feeder.figures == OutletFigures("place", sent=2, failed=3, dropped=2)
    assert [str(each.message) for each in caught] == [
        "metrics to place: away. The job goes on; further failures are only counted."
    ]


def test_the_end_does_not_wait_for_a_place_that_hangs() -> None:
    writer = Held()
    feeder = Feeder("hung", writer)
    feeder.offer(snapshot())
    assert writer.entered.wait(WAIT_S)
    feeder.offer(snapshot())
    with pytest.warns(RuntimeWarning, match="did not answer in time"):
        feeder.close(monotonic())
    assert feeder.figures.dropped == 1
    writer.go.set()
    eventually(lambda: writer.closed)
    assert feeder.figures == OutletFigures("hung", sent=1, failed=0, dropped=1)


def test_a_user_who_makes_errors_of_warnings_still_gets_samples() -> None:
    writer = Held(OutletFailed("no", again=False))
    writer.go.set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        feeder = Feeder("place", writer)
        feeder.offer(snapshot(at_us=1))
        feeder.offer(snapshot(at_us=2))
        feeder.close(monotonic() + WAIT_S)
    assert writer.taken == [2]
