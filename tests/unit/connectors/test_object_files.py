"""The files sink in an object store: nothing before the commit, everything once after it, whatever fails in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyspark import cloudpickle

import penstock as ps
from penstock.connectors import SinkWriter, WriterContext, files
from penstock.connectors.store import Store
from penstock.errors import InvalidGraph, InvalidOption, SinkFailed
from penstock.runtime.job import plan_of
from penstock.types import Schema

_SCHEMA = Schema.parse("k string, n bigint")
_JOB = "00c0ffee00c0ffee"


class Crash(ValueError):
    """The process is gone."""


class Faulty(MemoryFileSystem):
    """Crashes at its n-th change, before it or after it; from then on nothing is heard of that process."""

    protocol = "faulty"
    store: dict[str, Any] = {}  # noqa: RUF012 (as the base class has it: one for all instances)
    pseudo_dirs = [""]  # noqa: RUF012
    left: int | None = None
    after = False

    def _change(self, change: Callable[[], None]) -> None:
        cls = type(self)
        if cls.left is not None:
            if cls.left <= 0:
                raise Crash
            cls.left -= 1
            if cls.left == 0 and not cls.after:
                raise Crash
        change()
        if cls.left == 0:
            raise Crash

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        self._change(lambda: super(Faulty, self).pipe_file(path, value, mode=mode))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._change(lambda: super(Faulty, self).cp_file(path1, path2))

    def rm_file(self, path: str) -> None:
        self._change(lambda: super(Faulty, self).rm_file(path))


fsspec.register_implementation("faulty", Faulty, clobber=True)


@pytest.fixture(params=["memory", "faulty"])
def url(request: pytest.FixtureRequest) -> str:
    Faulty.left, Faulty.after = None, False
    return f"{request.param}://{uuid4().hex}/out"


@pytest.fixture
def faulty() -> Iterator[str]:
    yield f"faulty://{uuid4().hex}/out"
    Faulty.left = None


def _rows(*numbers: int) -> list[Any]:
    return [_SCHEMA.record_type(f"k{n}", n) for n in numbers]


def _writer(sink: Any, instance: int = 0, job: str = _JOB, *, resumable: bool = True) -> SinkWriter:
    sent = cloudpickle.loads(cloudpickle.dumps(sink))
    writer: SinkWriter = sent.writer(_SCHEMA, WriterContext("job/1", "counts", instance, 2, job, resumable))
    return writer


def _prepare(writer: SinkWriter, epoch: int, *numbers: int) -> bytes | None:
    """An epoch as the engine has it: what is prepared is uploaded before the snapshot counts."""
    writer.write(_rows(*numbers))
    writer.prepare(epoch)
    held = writer.snapshot(epoch)
    for upload in writer.uploads():
        upload()
    return held


def _commit(writer: SinkWriter, epoch: int, *numbers: int) -> bytes | None:
    held = _prepare(writer, epoch, *numbers)
    assert writer.commit(epoch) is None
    writer.finish()
    return held


def _parts(url: str) -> dict[str, list[int]]:
    store = Store(url, "path")
    return {
        name: [json.loads(line)["n"] for line in store.read(name).splitlines()]
        for name in store.names()
        if name.startswith("part-")
    }


def _pending(url: str) -> list[str]:
    return Store(url, "path").names(".pending")


def _part(number: int, instance: int = 0, job: str = _JOB) -> str:
    return f"part-{number:08d}-{instance:04d}-{job}.jsonl"


def test_output_appears_on_commit_epoch_by_epoch(url: str) -> None:
    sink = files(url)
    sink.check(_SCHEMA)
    sink.claim()
    writers = [_writer(sink, instance) for instance in range(2)]
    for instance, writer in enumerate(writers):
        _prepare(writer, 1, 10 + instance, 20 + instance)
    assert _parts(url) == {}
    assert len(_pending(url)) == 2
    for writer in writers:
        writer.commit(1)
        writer.finish()
    _commit(writers[0], 3, 30)
    assert _parts(url) == {_part(1): [10, 20], _part(1, 1): [11, 21], _part(3): [30]}
    assert _pending(url) == []


def test_an_epoch_without_rows_makes_no_call_and_no_object(url: str) -> None:
    writer = _writer(files(url))
    assert (_prepare(writer, 1), writer.uploads()) == (None, [])
    writer.commit(1)
    writer.finish()
    assert _parts(url) == {}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
def test_a_crash_at_any_call_loses_nothing_and_doubles_nothing(faulty: str, at: int, after: bool) -> None:
    """Epoch 1 and 2 take three calls each: upload, copy, remove. Rows of what was not committed are written again."""
    recorded: list[tuple[int, bytes | None]] = [(0, None)]
    writer = _writer(files(faulty))

    def work() -> None:
        for epoch in (1, 2):
            recorded.append((epoch, _prepare(writer, epoch, epoch)))
            writer.commit(epoch)
            writer.finish()

    Faulty.left, Faulty.after = at, after
    with pytest.raises((SinkFailed, Crash)):
        work()
    writer.close()
    committed, held = recorded[-1]
    Faulty.left = None
    for _ in range(2):  # the second one is lost as soon as it has begun
        writer = _writer(files(faulty))
        writer.restore(committed, held)
        writer.finish()
    for epoch in range(committed + 1, 4):
        _commit(writer, epoch, epoch)
    assert _parts(faulty) == {_part(1): [1], _part(2): [2], _part(3): [3]}
    assert _pending(faulty) == [], "what was left is gone"


def test_a_writer_that_was_replaced_changes_nothing(url: str) -> None:
    old = _writer(files(url))
    held = _prepare(old, 1, 1)
    new = _writer(files(url))
    new.restore(1, held)
    new.finish()
    old.commit(1)  # it was told, and was suspended before it did it
    old.finish()
    _prepare(old, 2, 666)
    _commit(new, 2, 2)
    assert _parts(url) == {_part(1): [1], _part(2): [2]}
    third = _writer(files(url))
    third.restore(2, None)
    third.finish()
    _commit(third, 3, 3)
    assert _pending(url) == []


def test_an_upload_of_an_instance_that_was_built_anew_leaves_nothing(url: str) -> None:
    old = _writer(files(url))
    old.write(_rows(1))
    old.prepare(1)
    uploads = old.uploads()
    old.close()
    for upload in uploads:
        upload()
    assert _pending(url) == []


def test_jobs_do_not_touch_each_other(url: str) -> None:
    other = "00000000000000aa"
    _prepare(_writer(files(url)), 1, 1)
    _prepare(_writer(files(url), job="00000000000000bb", resumable=False), 1, 1)
    writer = _writer(files(url), job=other)
    _commit(writer, 1, 2)
    assert _parts(url) == {_part(1, job=other): [2]}
    assert len(_pending(url)) == 2


def test_what_is_there_is_refused_kept_or_replaced(url: str) -> None:
    sink = files(url)
    sink.check(_SCHEMA)
    _commit(_writer(sink), 1, 1)
    with pytest.raises(SinkFailed, match="part files of an earlier run"):
        files(url).check(_SCHEMA)
    appending = files(url, existing="append")
    appending.check(_SCHEMA)
    appending.claim()
    other = "00000000000000aa"
    _commit(_writer(appending, job=other), 1, 2)
    assert _parts(url) == {_part(1): [1], _part(3, job=other): [2]}
    replacing = files(url, existing="replace")
    replacing.check(_SCHEMA)
    assert len(_parts(url)) == 2, "planning removes nothing"
    replacing.claim()
    assert _parts(url) == {}


def test_scratch_of_jobs_that_are_long_gone_is_removed_and_nothing_else(url: str, monkeypatch: Any) -> None:
    _prepare(_writer(files(url), resumable=False), 1, 1)
    _prepare(_writer(files(url), job="00000000000000aa"), 1, 1)
    files(url).claim()
    assert len(_pending(url)) == 2
    monkeypatch.setattr("penstock.connectors.object_files._SCRATCH_S", -60.0)
    files(url).claim()
    assert [name.startswith("scratch-") for name in _pending(url)] == [False]


def test_an_older_checkpoint_under_newer_output_is_refused(url: str) -> None:
    sink = files(url)
    sink.check(_SCHEMA)
    writer = _writer(sink)
    for epoch in (1, 2, 3):
        _commit(writer, epoch, epoch)
    state = {**sink.state(), "epoch": 2, "job_id": _JOB, "operation": "counts"}
    with pytest.raises(SinkFailed, match=r"part-00000003-.* is newer than the checkpoint"):
        files(url).resume(state)
    files(url).resume({**state, "epoch": 3})
    files(url).resume({**state, "job_id": "00000000000000aa"})


def test_a_sink_that_has_moved_is_refused(url: str, tmp_path: Any) -> None:
    state = {**files(url).state(), "epoch": 2, "job_id": _JOB, "operation": "counts"}
    for moved in (files(f"{url}/elsewhere"), files(tmp_path)):
        assert not moved.writes_where(state)
        with pytest.raises(SinkFailed, match="the last run wrote into"):
            moved.resume(state)
    local = {**files(tmp_path).state(), "epoch": 2, "job_id": _JOB, "operation": "counts"}
    with pytest.raises(SinkFailed, match="the last run wrote into"):
        files(url).resume(local)


def test_parquet_and_staged_batches(url: str) -> None:
    import io

    import pyarrow.parquet as pq

    sink = files(url, format="parquet")
    writer = _writer(sink)
    writer.adopt(sink.stager(_SCHEMA, "counts")(_SCHEMA.to_batch(_rows(1, 2))), _SCHEMA)
    writer.write(_rows(3))
    _commit(writer, 1)
    (name,) = [name for name in Store(url, "path").names() if name.startswith("part-")]
    assert pq.read_table(io.BytesIO(Store(url, "path").read(name)))["n"].to_pylist() == [1, 2, 3]


def test_a_store_that_is_away_for_a_while_is_asked_again(faulty: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.connectors.store._AGAIN_S_FIRST", 0.001)
    monkeypatch.setattr("penstock.connectors.store._AGAIN_S_MAX", 0.001)
    away = [3]
    cat = MemoryFileSystem.pipe_file

    def put(self: Any, *arguments: Any, **options: Any) -> None:
        if away[0]:
            away[0] -= 1
            raise ConnectionError("nobody is there")
        cat(self, *arguments, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", put)
    _commit(_writer(files(faulty)), 1, 1)
    assert (_parts(faulty), away) == ({_part(1): [1]}, [0])


def test_a_store_that_stays_away_is_named_without_its_password(monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.connectors.object_files.START_OUTAGE_S", 0.0)

    def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("nobody is there")

    monkeypatch.setattr(MemoryFileSystem, "ls", away)
    with pytest.raises(SinkFailed, match=r"memory://host/out.*nobody is there") as raised:
        files("memory://ann:secret@host/out").check(_SCHEMA)
    assert "secret" not in str(raised.value)


def test_a_full_spool_asks_for_the_next_epoch(url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.connectors.object_files.SPOOL_BYTES_MAX", 30)
    writer = _writer(files(url))
    writer.write(_rows(1))
    assert not writer.is_full
    writer.write(_rows(2, 3))
    assert writer.is_full
    writer.prepare(1)
    assert not writer.is_full


def test_a_url_that_nothing_opens_is_refused_where_it_is_given() -> None:
    with pytest.raises(InvalidOption, match="path="):
        files("nosuch://bucket/out")


def test_two_sinks_of_one_url_are_refused(url: str) -> None:
    stream = ps.stream("numbers", ps.records([(1,)], schema="n bigint"))
    with pytest.raises(InvalidGraph, match="writes into"):
        plan_of(stream.to(files(url), name="a"), stream.to(files(url), name="b"))
