"""The parquet sink: exactly once through a crash at any step, whole files only, laid out as Spark lays them out."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors import WriterContext, merging
from penstock.connectors import parquet_sink as parquet
from penstock.errors import InvalidOption, PenstockError, SinkFailed, TypeMismatch
from penstock.testing import check_sink
from penstock.types import Schema

SCHEMA = Schema.parse("n bigint, day string")
JOB = "0123456789abcdef"


class Crash(BaseException):
    """The process is gone."""


class Inline:
    """What another thread would do, done at once."""

    is_done = True

    def __init__(self, call: Any) -> None:
        call()

    def wait(self) -> None:
        pass


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_Errand", Inline)


class Faults:
    """Crashes before or after the given call that changes a directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: list[int]) -> None:
        self.left = steps
        for of, name in ((Path, "replace"), (Path, "rename"), (shutil, "rmtree"), (pq, "write_table")):
            monkeypatch.setattr(of, name, self.crashing(getattr(of, name)))

    def crashing(self, call: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            if self.left and self.left[0] == 0:
                self.left.pop(0)
                raise Crash
            done = call(*arguments, **options)
            if self.left:
                self.left[0] -= 1
                if self.left[0] == 0:
                    self.left.pop(0)
                    raise Crash
            return done

        return called


def context(*, resumable: bool = True) -> WriterContext:
    return WriterContext("job", "out", 0, 1, JOB, is_resumable=resumable)


def sink_of(path: Path, **options: Any) -> parquet.Parquet:
    return ps.parquet(path, **options)


def visible(path: Path) -> Counter[tuple[int, str]]:
    files = [str(each) for each in parquet._parts(path)]
    rows = ds.dataset(files, format="parquet").to_table().to_pylist() if files else []
    return Counter((row["n"], row.get("day", "")) for row in rows)


def rows(*numbers: int) -> list[Any]:
    return [SCHEMA.record_type(n, f"d{n % 3}") for n in numbers]


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 12), max_size=4),
    st.lists(st.lists(st.integers(0, 99), max_size=3), min_size=1, max_size=6),
    st.sampled_from(["0s", "1h"]),
    st.booleans(),
)
def test_every_row_is_there_once_whatever_step_a_crash_follows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], epochs: list[list[int]], every: str, apart: bool
) -> None:
    path = tmp_path_factory.mktemp("out") / "out"
    with pytest.MonkeyPatch.context() as monkeypatch:
        sink = sink_of(path, every=every, partition_by="day" if apart else ())
        Faults(monkeypatch, list(steps))
        committed, snapshot, writer, epoch = 0, None, None, 0
        expected: Counter[int] = Counter()
        while True:
            try:
                if writer is None:
                    writer = sink.writer(SCHEMA, context())
                    writer.restore(committed, snapshot)
                    epoch = committed
                    if epoch:
                        writer.commit(epoch)
                if epoch == len(epochs):
                    writer.finish()
                    break
                writer.write(rows(*epochs[epoch]))
                writer.prepare(epoch + 1)
                held = writer.snapshot(epoch + 1)
                epoch += 1
                committed, snapshot = epoch, held  # the driver has recorded it
                expected.update(epochs[epoch - 1])
                writer.commit(epoch)
            except Crash:
                writer = None
            assert Counter(n for n, _ in visible(path).elements()) <= expected
        assert Counter(n for n, _ in visible(path).elements()) == expected
        assert not [each for each in (path / ".pending").rglob("*") if each.is_file()]


def test_many_epochs_make_one_file(tmp_path: Path) -> None:
    writer = sink_of(tmp_path / "out", every="1h").writer(SCHEMA, context())
    for epoch in range(1, 21):
        writer.write(rows(epoch))
        writer.prepare(epoch)
        writer.commit(epoch)
    assert visible(tmp_path / "out") == Counter()
    writer.finish()
    assert [each.name for each in parquet._parts(tmp_path / "out")] == [f"part-00000001-00000020-0000-{JOB}.parquet"]
    assert sum(visible(tmp_path / "out").values()) == 20


def test_enough_bytes_do_not_wait(tmp_path: Path) -> None:
    writer = sink_of(tmp_path / "out", every="1h", file_bytes=1024).writer(SCHEMA, context())
    writer.write_batch(SCHEMA.to_batch(rows(*range(200))), SCHEMA)
    assert writer.is_full
    writer.prepare(1)
    assert not writer.is_full
    writer.commit(1)
    assert sum(visible(tmp_path / "out").values()) == 200


def test_directories_are_named_as_spark_names_them(tmp_path: Path) -> None:
    schema = Schema.parse("n bigint, `odd name` string, b boolean, d date")
    writer = sink_of(tmp_path / "out", partition_by=["odd name", "b", "d"]).writer(schema, context())
    made = schema.record_type
    writer.write([made(1, "a/b=ü %", True, 1), made(2, None, None, None), made(3, "", False, 0)])
    writer.prepare(1)
    writer.commit(1)
    writer.finish()
    null = "__HIVE_DEFAULT_PARTITION__"
    found = [str(each.parent.relative_to(tmp_path / "out")) for each in parquet._parts(tmp_path / "out")]
    assert sorted(found) == sorted(
        [
            "odd name=a%2Fb%3Dü %25/b=true/d=1970-01-02",
            f"odd name={null}/b={null}/d={null}",
            f"odd name={null}/b=false/d=1970-01-01",
        ]
    )


def test_more_directories_than_allowed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "PARTITIONS_MAX", 2)
    writer = sink_of(tmp_path / "out", partition_by="day").writer(SCHEMA, context())
    writer.write(rows(0, 1, 2))
    writer.prepare(1)
    writer.commit(1)
    with pytest.raises(SinkFailed, match="3 directories"):
        writer.finish()


def test_a_job_that_cannot_be_resumed_shows_what_it_has_committed_when_it_ends(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "out", every="1h")
    sink.check(SCHEMA)
    sink.claim()
    writer = sink.writer(SCHEMA, context(resumable=False))
    writer.write(rows(1))
    writer.prepare(1)
    writer.commit(1)
    writer.write(rows(2))
    writer.prepare(2)  # and never committed
    with pytest.raises(SinkFailed, match="another running job"):
        sink_of(tmp_path / "out").claim()
    sink.release()
    assert visible(tmp_path / "out") == Counter({(1, "d1"): 1})
    again = sink_of(tmp_path / "out", existing="replace")
    again.check(SCHEMA)
    again.claim()
    again.release()
    assert visible(tmp_path / "out") == Counter()
    assert [each.name for each in (tmp_path / "out" / ".pending").iterdir()] == ["lock"]


@pytest.mark.parametrize("every", ["0s", "1h"])
def test_an_older_checkpoint_is_refused_and_a_second_job_goes_on_behind_the_first(tmp_path: Path, every: str) -> None:
    sink = sink_of(tmp_path / "out", every=every)
    writer = sink.writer(SCHEMA, context())
    for epoch in (1, 2):
        writer.write(rows(epoch))
        writer.prepare(epoch)
        writer.commit(epoch)
    state = {**sink.state(), "job_id": JOB, "operation": "out"}
    with pytest.raises(SinkFailed, match="is newer than the checkpoint"):
        sink_of(tmp_path / "out", every=every).resume({**state, "epoch": 1})
    sink_of(tmp_path / "out", every=every).resume({**state, "epoch": 2})
    writer.finish()
    with pytest.raises(SinkFailed, match='existing="append"'):
        sink_of(tmp_path / "out").check(SCHEMA)
    other = sink_of(tmp_path / "out", existing="append")
    other.check(SCHEMA)
    assert other.state()["first_part"] == 3
    with pytest.raises(SinkFailed, match="the last run wrote into"):
        sink_of(tmp_path / "elsewhere").resume({**state, "epoch": 2})


@pytest.mark.parametrize(
    ("options", "schema", "error", "text"),
    [
        ({"partition_by": "nope"}, "n bigint", PenstockError, "no column 'nope'"),
        ({"partition_by": "x"}, "n bigint, x double", TypeMismatch, "makes no directory"),
        ({"partition_by": "n"}, "n bigint", InvalidOption, "not all columns"),
        ({"partition_by": ["n", "n"]}, "n bigint", InvalidOption, "each once"),
        ({"every": "soon"}, "n bigint", InvalidOption, "every='soon'"),
        ({"file_bytes": 1}, "n bigint", InvalidOption, "file_bytes=1"),
        ({"path": "s3://bucket/x"}, "n bigint", InvalidOption, "ps.files"),
        ({"path": __file__}, "n bigint", InvalidOption, "a directory"),
    ],
)
def test_what_cannot_work_is_refused_before_the_job_begins(
    tmp_path: Path, options: dict[str, Any], schema: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ps.parquet(**{"path": tmp_path / "out", **options}).check(Schema.parse(schema))


def test_a_merge_whose_files_another_writer_has_removed_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was replaced goes on with its merge, while its successor clears away and does it again."""
    sink = sink_of(tmp_path / "out", every="1h", partition_by="day")
    writer = sink.writer(SCHEMA, context())
    writer.write(rows(0, 1, 2))
    writer.prepare(1)
    writer.commit(1)
    write, snapshot = pq.write_table, writer.snapshot(1)
    successors: list[Any] = []

    def slow(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        if not successors:
            successors.append(sink.writer(SCHEMA, context()))
            successors[0].restore(1, snapshot)

    monkeypatch.setattr(pq, "write_table", slow)
    with pytest.raises(SinkFailed, match="another process has taken over"):
        writer.finish()
    assert sum(visible(tmp_path / "out").values()) == 3
    successors[0].finish()
    assert sum(visible(tmp_path / "out").values()) == 3


def test_it_keeps_the_promises_of_a_sink(tmp_path: Path) -> None:
    def rows_of() -> list[Any]:
        parts = parquet._parts(tmp_path / "out")
        return [row for part in parts for row in pq.ParquetFile(part).read().to_pylist()]

    check_sink(lambda: sink_of(tmp_path / "out", every=0, existing="append"), rows_of)
