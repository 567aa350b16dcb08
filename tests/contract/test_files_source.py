"""`json_files` in a whole job: runs that are resumed, files that grow meanwhile, both forms, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.control.resume import take_up_sources
from penstock.control.scheduler import Resumption
from penstock.engine.snapshot import decode_snapshot
from penstock.errors import OperationFailed, SourceChanged, SourceMissing
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

FOREVER_US = 1 << 62
S = 1_000_000


def write(path: Path, first: int, count: int, mode: str = "a") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps({"n": n}) + "\n" for n in range(first, first + count))


class Runs:
    """Runs of one job over a directory, each of which goes on from the last commit of the one before."""

    def __init__(self, directory: Path, *, follow: bool = False, parallelism: int = 2, strict: bool = False) -> None:
        self.directory = directory
        self.follow = follow
        self.parallelism = parallelism
        self.sink, self.dead = ps.files(directory / "out"), ps.memory()
        self.policy = "fail" if strict else "dead_letter"
        self.disk: dict[str, bytes] = {}
        self.last: Any = None
        self.cluster: Cluster

    def start(self) -> Cluster:
        """Start a run, or the next one."""
        source = ps.json_files(self.directory, follow=self.follow)
        stream = ps.stream("lines", source).parse_json("n bigint not null", on_error=self.policy, name="parse")
        options = Options.of(parallelism=self.parallelism, epoch="100ms")
        states = {"out": {**self.sink.state(), "epoch": self.last.epoch}} if self.last is not None else None
        pipeline = stream.filter(ps.col("n") >= 0).to(self.sink, name="out")
        plan = Plan.of(pipeline.graph(states), options, self.dead)
        resumption, last = None, self.last
        if last is not None:
            newest = {(each.unit, each.instance): each for each in last.snapshots}
            take_up_sources(plan, [(unit, decode_snapshot(self.disk[each.name])) for (unit, _), each in newest.items()])
            resumption = Resumption(last.epoch, last.start_us, last.generation, last.snapshots)
        self.cluster = Cluster(plan, resumption, self.disk)
        return self.cluster

    def stop(self) -> None:
        """Keep what a driver that starts again finds."""
        self.disk, self.last = self.cluster.disk, self.cluster.commits[-1]

    def to_the_end(self) -> None:
        self.start().run_until(FOREVER_US)
        self.stop()

    def wait(self, seconds: float) -> None:
        self.cluster.run_until(self.cluster.now_us + int(seconds * S))

    @property
    def read(self) -> Counter[int]:
        parts = sorted((self.directory / "out").glob("part-*"))
        return Counter(json.loads(line)["n"] for part in parts for line in part.read_text().splitlines())


def test_a_file_added_between_two_runs_is_read_once(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    write(tmp_path / "a.jsonl", 0, 3_000)
    write(tmp_path / "c.jsonl", 3_000, 3_000)
    runs.to_the_end()
    assert runs.read == Counter(range(6_000))
    write(tmp_path / "b.jsonl", 6_000, 3_000)
    write(tmp_path / "c.jsonl", 9_000, 10)
    runs.to_the_end()
    assert runs.read == Counter(range(9_010))
    runs.to_the_end()
    assert runs.read == Counter(range(9_010))


@pytest.mark.parametrize("range_", [(0, -1), (-1, 1), (-1, 0), (0, 1), (1, 1)], ids=str)
def test_a_directory_is_followed_in_every_form(tmp_path: Path, range_: tuple[int, int]) -> None:
    """Growth, new files, a rotation and a lost worker, while operations are computed here or in slots."""
    runs = Runs(tmp_path, follow=True)
    write(tmp_path / "a.jsonl", 0, 500)
    cluster = runs.start()
    cluster.add_slot(0)
    cluster.add_slot(1)
    runs.wait(0.3)
    cluster.switch(0, *range_)
    write(tmp_path / "a.jsonl", 500, 500)
    runs.wait(0.5)
    assert runs.read == Counter(range(1_000))
    write(tmp_path / "b.jsonl", 1_000, 500)
    (tmp_path / "a.jsonl").rename(tmp_path / "a.jsonl.1")
    write(tmp_path / "a.jsonl.1", 1_500, 10)
    write(tmp_path / "a.jsonl", 1_510, 490)
    runs.wait(0.07)
    cluster.crash(0)
    runs.wait(1)
    cluster.switch(0, 0, -1)
    write(tmp_path / "a.jsonl", 2_000, 100)
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write('{"n": 7')
    runs.wait(1)
    assert runs.read == Counter(range(2_100)), "a line without its end is not read"
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write('777}\n{"n": 8888}')
    runs.wait(1)
    assert not cluster.ended
    cluster.drain()
    cluster.run_until(FOREVER_US)
    assert runs.read == Counter([*range(2_100), 7_777])
    runs.stop()
    (tmp_path / "a.jsonl.1").rename(tmp_path / "old.jsonl")
    write(tmp_path / "a.jsonl", 2_100, 5)
    runs.start()
    runs.wait(1)
    assert runs.read == Counter([*range(2_105), 7_777])


@pytest.mark.parametrize("follow", [False, True])
def test_a_gzip_file_that_has_grown_is_read_on(tmp_path: Path, follow: bool) -> None:
    runs = Runs(tmp_path, follow=follow)
    for first in (0, 10_000, 20_000):
        text = b"".join(b'{"n": %d}\n' % n for n in range(first, first + 10_000))
        with (tmp_path / "a.jsonl.gz").open("ab") as file:
            file.write(gzip.compress(text))
        runs.start()
        runs.wait(1)
        assert runs.read == Counter(range(first + 10_000))
        runs.stop()
    (tmp_path / "a.jsonl").write_bytes(gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()))
    (tmp_path / "a.jsonl.gz").unlink()
    write(tmp_path / "a.jsonl", 30_000, 5)
    runs.start()
    runs.wait(1)
    assert runs.read == Counter(range(30_005)), "it is the same file, compressed or not"


@pytest.mark.parametrize("follow", [False, True])
def test_what_was_read_must_stay_as_it_is(tmp_path: Path, follow: bool) -> None:
    runs = Runs(tmp_path, follow=follow)
    write(tmp_path / "a.jsonl", 0, 100)
    write(tmp_path / "b.jsonl", 100, 100)
    runs.start()
    runs.wait(1)
    assert runs.read == Counter(range(200))
    runs.stop()
    whole = (tmp_path / "a.jsonl").read_bytes()
    for problem, content in {
        "shorter": whole[:400],
        "have changed": whole[:-3] + b"8}\n",
        "first line": b'{"n": 5}\n' + whole[9:],
    }.items():
        (tmp_path / "a.jsonl").write_bytes(content)
        runs.start()
        with pytest.raises(SourceChanged, match=f"a.jsonl.*{problem}"):
            runs.wait(1)
    (tmp_path / "a.jsonl").write_bytes(whole)
    runs.start()
    runs.wait(1)
    assert runs.read == Counter(range(200))


def test_a_file_that_takes_the_place_of_another_is_refused_by_name(tmp_path: Path) -> None:
    runs = Runs(tmp_path, follow=True)
    write(tmp_path / "a.jsonl", 0, 100)
    runs.start()
    runs.wait(0.5)
    write(tmp_path / ".next", 1_000, 100)
    (tmp_path / ".next").rename(tmp_path / "a.jsonl")
    with pytest.raises(SourceChanged, match=r"a\.jsonl.*taken its place"):
        runs.wait(0.5)


def test_a_file_that_goes_before_it_was_read_is_missed(tmp_path: Path) -> None:
    runs = Runs(tmp_path, parallelism=1)
    write(tmp_path / "a.jsonl", 0, 100_000)
    write(tmp_path / "b.jsonl", 100_000, 10)
    cluster = runs.start()
    cluster.run_until(cluster.now_us + 1)
    (tmp_path / "b.jsonl").unlink()
    with pytest.raises(SourceMissing, match=r"b\.jsonl"):
        cluster.run_until(FOREVER_US)


@pytest.mark.parametrize("range_", [(0, -1), (-1, 1), (0, 1)], ids=str)
def test_dead_letters_name_file_and_line(tmp_path: Path, range_: tuple[int, int]) -> None:
    (tmp_path / "a.jsonl").write_text('\n{"n": 1}\nnonsense\n\n{"n": 2}\n{"n": null}\n')
    (tmp_path / "b.jsonl").write_text('{"n": 3}\n  \n{"n": "x"}')
    runs = Runs(tmp_path, parallelism=1)
    cluster = runs.start()
    cluster.add_slot(0)
    cluster.switch(0, *range_)
    cluster.run_until(FOREVER_US)
    assert runs.read == Counter([1, 2, 3])
    found = [(row.source, row.partition, Path(row.file).name, row.line, row.offset) for row in runs.dead.rows]
    assert found == [("lines", 0, "a.jsonl", 3, 10), ("lines", 0, "a.jsonl", 6, 29), ("lines", 0, "b.jsonl", 3, 12)]


@pytest.mark.parametrize("range_", [(0, -1), (-1, 1), (0, 1)], ids=str)
def test_an_error_names_file_and_line(tmp_path: Path, range_: tuple[int, int]) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n\nnonsense\n')
    runs = Runs(tmp_path, parallelism=1, strict=True)
    cluster = runs.start()
    cluster.add_slot(0)
    cluster.switch(0, *range_)
    with pytest.raises(OperationFailed, match=r"source 'lines', file '.*a\.jsonl', line 3"):
        cluster.run_until(FOREVER_US)


def test_an_empty_directory_is_followed_and_a_missing_one_refused(tmp_path: Path) -> None:
    runs = Runs(tmp_path, follow=True)
    runs.start()
    runs.wait(1)
    write(tmp_path / "a.jsonl", 0, 10)
    runs.wait(1)
    assert runs.read == Counter(range(10))
    with pytest.raises(SourceMissing, match="nowhere"):
        Runs(tmp_path / "nowhere", follow=True).start()


def test_a_backlog_is_seen_before_it_is_read(tmp_path: Path) -> None:
    """Without it the unit would never change form."""
    write(tmp_path / "a.jsonl", 0, 200_000)
    runs = Runs(tmp_path, parallelism=1)
    cluster = runs.start()
    cluster.run_until(cluster.now_us + 1)
    (unit,) = [each for worker in cluster.workers for each in worker.units if each.spec.source is not None]
    arrived = unit.input.arrived_records(cluster.now_us)
    assert 100_000 < arrived < 400_000
