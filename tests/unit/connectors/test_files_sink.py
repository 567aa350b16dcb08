"""The files sink: nothing before the commit, everything once after it, and clear errors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from penstock.connectors import SinkWriter, WriterContext, files, json_files
from penstock.errors import BadRecord, InvalidOption, SinkFailed
from penstock.types import Schema

_SCHEMA = Schema.parse("k string, n bigint")


def _rows(*numbers: int) -> list[Any]:
    return [_SCHEMA.record_type(f"k{n}", n) for n in numbers]


def _writer(sink: Any, instance: int = 0, schema: Schema = _SCHEMA) -> SinkWriter:
    sent = cloudpickle.loads(cloudpickle.dumps(sink))
    writer: SinkWriter = sent.writer(schema, WriterContext("job/1", "counts", instance, 2))
    return writer


def _parts(path: Path) -> dict[str, list[int]]:
    return {
        part.name: [json.loads(line)["n"] for line in part.read_text().splitlines()]
        for part in sorted(path.glob("part-*"))
    }


def _commit(writer: SinkWriter, epoch: int, *numbers: int) -> None:
    writer.write(_rows(*numbers))
    writer.prepare(epoch)
    assert writer.commit(epoch) is None


def test_output_appears_on_commit_epoch_by_epoch(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    sink = files(out)
    sink.check(_SCHEMA)
    assert not out.exists()
    writers = [_writer(sink, instance) for instance in range(2)]
    writers[0].write(_rows(1, 2))
    writers[0].write(_rows(3))
    writers[1].write(_rows(4))
    assert _parts(out) == {}
    for writer in writers:
        writer.prepare(0)
    assert _parts(out) == {}
    for writer in writers:
        writer.commit(0)
    expected = {"part-00000000-0000.jsonl": [1, 2, 3], "part-00000000-0001.jsonl": [4]}
    assert _parts(out) == expected
    for writer in writers:
        writer.prepare(1)
        writer.commit(1)
    assert _parts(out) == expected
    _commit(writers[1], 2, 5)
    assert _parts(out) == {**expected, "part-00000002-0001.jsonl": [5]}
    for writer in writers:
        writer.close()
    assert list((out / ".pending").iterdir()) == []


def test_a_writer_that_was_replaced_and_runs_on_changes_nothing(tmp_path: Path) -> None:
    sink = files(tmp_path)
    old = _writer(sink)
    old.write(_rows(1))
    old.prepare(1)
    held = old.snapshot(1)
    old.write(_rows(2))
    new = _writer(sink)
    new.restore(1, held)
    new.write(_rows(20))
    old.commit(1)  # an order that was under way to it
    new.prepare(2)
    stale = _writer(sink)
    stale.write(_rows(2))
    stale.prepare(2)
    old.close()
    new.commit(2)
    assert _parts(tmp_path) == {"part-00000001-0000.jsonl": [1], "part-00000002-0000.jsonl": [20]}


def test_commit_is_idempotent_and_takes_earlier_epochs_along(tmp_path: Path) -> None:
    writer = _writer(files(tmp_path))
    for epoch in (3, 4, 5):
        writer.write(_rows(epoch))
        writer.prepare(epoch)
    for _ in range(2):
        writer.commit(4)
        assert _parts(tmp_path) == {"part-00000003-0000.jsonl": [3], "part-00000004-0000.jsonl": [4]}
    writer.commit(5)
    assert len(_parts(tmp_path)) == 3


def test_next_writer_commits_what_was_prepared(tmp_path: Path) -> None:
    sink = files(tmp_path)
    first = _writer(sink)
    first.write(_rows(1))
    first.prepare(0)
    held = first.snapshot(0)
    first.write(_rows(2))
    first.close()
    second = _writer(sink)
    second.restore(0, held)
    _commit(second, 1, 3)
    assert _parts(tmp_path) == {"part-00000000-0000.jsonl": [1], "part-00000001-0000.jsonl": [3]}


def test_next_writer_that_prepares_an_epoch_again_replaces_it(tmp_path: Path) -> None:
    sink = files(tmp_path)
    first = _writer(sink)
    for epoch in (0, 1):
        first.write(_rows(epoch))
        first.prepare(epoch)
    second = _writer(sink)
    _commit(second, 0)
    _commit(second, 1, 0, 1)
    assert _parts(tmp_path) == {"part-00000001-0000.jsonl": [0, 1]}


def test_what_is_not_prepared_is_dropped(tmp_path: Path) -> None:
    writer = _writer(files(tmp_path))
    writer.write(_rows(1))
    writer.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_parquet_from_rows_and_batches(tmp_path: Path) -> None:
    writer = _writer(files(tmp_path, format="parquet"))
    writer.write(_rows(1, 2))
    writer.write_batch(_SCHEMA.to_batch(_rows(3)), _SCHEMA)
    writer.write(_rows(4))
    writer.prepare(7)
    writer.commit(7)
    table = pq.read_table(tmp_path / "part-00000007-0000.parquet")
    assert table.schema.names == ["k", "n"]
    assert table.column("n").to_pylist() == [1, 2, 3, 4]


def test_batches_as_json_lines(tmp_path: Path) -> None:
    writer = _writer(files(tmp_path))
    writer.write_batch(_SCHEMA.to_batch(_rows(3, 4)), _SCHEMA)
    writer.write_batch(_SCHEMA.to_batch([]), _SCHEMA)
    writer.prepare(0)
    writer.commit(0)
    assert _parts(tmp_path) == {"part-00000000-0000.jsonl": [3, 4]}


def test_values_in_json(tmp_path: Path) -> None:
    schema = Schema.parse("t timestamp, d date, x double, b binary, s string, ts array<timestamp>, ok boolean")
    writer = _writer(files(tmp_path), schema=schema)
    record = schema.record_type
    writer.write([record(1_700_000_000_000_000, 19_675, float("nan"), b"\x00\xff", "é\n", [0, None], True)])
    writer.write([record(-1, -1, 1.5, b"", "", [], False), record()])
    writer.prepare(0)
    writer.commit(0)
    lines = (tmp_path / "part-00000000-0000.jsonl").read_text(encoding="utf-8").splitlines()
    assert [list(json.loads(line).values()) for line in lines] == [
        [
            "2023-11-14T22:13:20.000000Z",
            "2023-11-14",
            None,
            "AP8=",
            "é\n",
            ["1970-01-01T00:00:00.000000Z", None],
            True,
        ],
        ["1969-12-31T23:59:59.999999Z", "1969-12-31", 1.5, "", "", [], False],
        [None] * 7,
    ]


@pytest.mark.parametrize("column", ["t timestamp", "d date"])
def test_times_that_no_calendar_holds(tmp_path: Path, column: str) -> None:
    schema = Schema.parse(column)
    with pytest.raises(BadRecord, match="outside of the years"):
        _writer(files(tmp_path), schema=schema).write(
            [schema.record_type((1 << 31) - 1 if "date" in column else 1 << 62)]
        )


def test_existing_output(tmp_path: Path) -> None:
    first = files(tmp_path)
    first.check(_SCHEMA)
    _commit(_writer(first), 4, 1)
    with pytest.raises(SinkFailed, match=r"holds part files of an earlier run.*append.*replace.*another path"):
        first.check(_SCHEMA)

    append = files(tmp_path, existing="append")
    append.check(_SCHEMA)
    _commit(_writer(append), 0, 2)
    assert _parts(tmp_path) == {"part-00000004-0000.jsonl": [1], "part-00000005-0000.jsonl": [2]}

    (tmp_path / "README").write_text("not ours")
    replace = files(tmp_path, existing="replace")
    replace.check(_SCHEMA)
    assert len(_parts(tmp_path)) == 2
    _commit(_writer(replace, 1), 0, 3)
    _commit(_writer(replace, 0), 0, 4)
    _commit(_writer(replace, 0), 1, 5)
    assert _parts(tmp_path) == {
        "part-00000006-0000.jsonl": [4],
        "part-00000006-0001.jsonl": [3],
        "part-00000007-0000.jsonl": [5],
    }
    assert (tmp_path / "README").exists()


def test_replace_leaves_the_claim_of_the_running_job(tmp_path: Path) -> None:
    sink = files(tmp_path, existing="replace")
    sink.claim()
    sink.release()
    sink.check(_SCHEMA)
    sink.claim()
    _writer(sink)
    with pytest.raises(SinkFailed, match="another running job"):
        files(tmp_path, existing="replace").claim()
    sink.release()


def test_a_checkpoint_that_is_older_than_the_output_is_refused(tmp_path: Path) -> None:
    _commit(_writer(files(tmp_path)), 3, 1)
    files(tmp_path).resume({"first_part": 0, "epoch": 3})
    with pytest.raises(SinkFailed, match=r"part-00000003-0000\.jsonl' is newer"):
        files(tmp_path).resume({"first_part": 0, "epoch": 2})


def test_path_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(InvalidOption, match="path"):
        files(path).check(_SCHEMA)
    with pytest.raises(SinkFailed, match="file"):
        files(path / "below").check(_SCHEMA)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write anywhere: be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65_534, 65_534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_path_that_cannot_be_written() -> None:
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o555)
        with unprivileged(), pytest.raises(SinkFailed, match="cannot be written"):
            files(Path(directory) / "out").check(_SCHEMA)


def test_disk_errors_name_the_file_and_the_operation(tmp_path: Path) -> None:
    out = tmp_path / "out"
    writer = _writer(files(out))
    writer.write(_rows(1))
    writer.prepare(0)
    (out / "part-00000000-0000.jsonl").mkdir()
    with pytest.raises(SinkFailed, match=r"operation 'counts'.*00000000.*jsonl"):
        writer.commit(0)


def test_lost_pending_file_is_an_error(tmp_path: Path) -> None:
    writer = _writer(files(tmp_path))
    writer.write(_rows(1))
    writer.prepare(0)
    for path in (tmp_path / ".pending").iterdir():
        path.unlink()
    with pytest.raises(SinkFailed, match="No such file"):
        writer.commit(0)


@pytest.mark.parametrize("options", [{"format": "csv"}, {"existing": "overwrite"}])
def test_bad_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        files("out", **options)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_restore_drops_what_was_prepared_later_and_makes_the_committed_epoch_visible(tmp_path: Path, form: str) -> None:
    sink = files(tmp_path, format=form)
    first, neighbour = _writer(sink), _writer(sink, instance=1)
    _commit(first, 1, 1)
    held = None
    for epoch in (2, 3, 4):
        first.write(_rows(epoch))
        first.prepare(epoch)
        held = first.snapshot(epoch) if epoch == 2 else held
    first.write(_rows(99))
    neighbour.write(_rows(7))
    neighbour.prepare(3)
    # The process dies here: epoch 2 is recorded as committed, nobody was told.
    second = _writer(sink)
    second.restore(2, held)
    names = {path.name for path in tmp_path.glob("part-*")}
    assert names == {f"part-00000001-0000.{form}", f"part-00000002-0000.{form}"}
    second.restore(2, held)
    second.commit(2)
    assert {path.name for path in tmp_path.glob("part-*")} == names, "again is the same"
    for epoch in (3, 4):
        second.prepare(epoch)
        second.commit(epoch)
    assert {path.name for path in tmp_path.glob("part-*")} == names, "this time they are without output"
    neighbour.commit(3)
    assert f"part-00000003-0001.{form}" in {path.name for path in tmp_path.glob("part-*")}, "others are left alone"


def test_a_snapshot_tells_of_earlier_epochs_whose_commit_is_still_to_come(tmp_path: Path) -> None:
    first = _writer(files(tmp_path))
    for epoch in (1, 2):
        first.write(_rows(epoch))
        first.prepare(epoch)
    held = first.snapshot(2)
    _writer(files(tmp_path)).restore(2, held)
    assert _parts(tmp_path) == {"part-00000001-0000.jsonl": [1], "part-00000002-0000.jsonl": [2]}


def test_a_restored_writer_does_not_miss_what_a_reader_has_taken_away(tmp_path: Path) -> None:
    first = _writer(files(tmp_path))
    first.write(_rows(1))
    first.prepare(1)
    held = first.snapshot(1)
    first.commit(1)
    (tmp_path / "part-00000001-0000.jsonl").unlink()
    second = _writer(files(tmp_path))
    second.restore(1, held)
    _commit(second, 2, 2)
    assert _parts(tmp_path) == {"part-00000002-0000.jsonl": [2]}


@pytest.mark.parametrize("url", ["s3://bucket/out", "memory://out", "hdfs://host/out"])
def test_a_url_is_not_taken_for_a_directory_of_that_name(url: str) -> None:
    with pytest.raises(InvalidOption, match="object stores are not supported"):
        json_files(url)


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    assert files(f"file://{tmp_path}/out").path == tmp_path / "out"
