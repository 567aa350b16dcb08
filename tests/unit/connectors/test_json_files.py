"""The JSON-lines source: which files, in which order, from any offset."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import cloudpickle

from penstock.connectors import json_files
from penstock.connectors.base import SourceReader
from penstock.errors import SourceMissing
from penstock.types import Schema


def _drain(reader: SourceReader, records_max: int = 2) -> list[bytes]:
    lines: list[bytes] = []
    while reader.wake_us(7) is not None:
        batch = reader.poll(7, records_max)
        if batch is not None:
            assert batch.due_us == 7
            assert 0 < len(batch.rows) <= records_max
            lines += [row.value for row in batch.rows]
    assert reader.poll(7, records_max) is None
    assert reader.offset == len(lines)
    return lines


def test_lines_without_blank_ones(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b'\n{"a": 1}\r\n\n  \n{"a": 2}\n\xc3\xa9\n{"a": 3}')
    source = json_files(path)
    source.check()
    assert source.schema == Schema.parse("value binary not null")
    assert source.partitions(4) == 1
    assert _drain(source.reader(0, 1, 0)) == [b'{"a": 1}', b'{"a": 2}', b"\xc3\xa9", b'{"a": 3}']


def test_directory_is_dealt_to_partitions_in_order(tmp_path: Path) -> None:
    for name in ("c.json", "a.jsonl", "b.ndjson", "d.jsonl"):
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    (tmp_path / "notes.txt").write_text("no\n")
    (tmp_path / ".hidden.jsonl").write_text("no\n")
    source = json_files(tmp_path)
    assert source.partitions(3) == 3
    assert source.partitions(8) == 4
    sent = cloudpickle.loads(cloudpickle.dumps(source))
    assert [_drain(sent.reader(partition, 2, 0)) for partition in range(2)] == [
        [b"a.jsonl1", b"a.jsonl2", b"c.json1", b"c.json2"],
        [b"b.ndjson1", b"b.ndjson2", b"d.jsonl1", b"d.jsonl2"],
    ]


def test_pattern(tmp_path: Path) -> None:
    for name in ("x1.log", "x2.log", "y.log"):
        (tmp_path / name).write_text(name)
    assert _drain(json_files(str(tmp_path / "x*.log")).reader(0, 1, 0)) == [b"x1.log", b"x2.log"]


@pytest.mark.parametrize("size", [1, 30_000])
def test_seek(tmp_path: Path, size: int) -> None:
    """Also with lines so long that every one is read on its own."""
    lines = [f"{i}".encode() * size for i in range(10)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines[:5]) + b"\n")
    (tmp_path / "b.jsonl").write_bytes(b"\n\n" + b"\n".join(lines[5:]))
    reader = json_files(tmp_path).reader(0, 1, 0)
    assert _drain(reader) == lines
    for offset in (0, 9, 4, 5, 10, 3):
        reader.seek(offset)
        assert reader.offset == offset
        rest = []
        while (batch := reader.poll(0, 3)) is not None:
            rest += [row.value for row in batch.rows]
        assert rest == lines[offset:]
    reader.close()


def test_missing(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path, tmp_path / "*.jsonl"):
        with pytest.raises(SourceMissing):
            json_files(path).check()
    gone = tmp_path / "gone.jsonl"
    gone.write_text("1\n")
    source = json_files(gone)
    source.check()
    gone.unlink()
    with pytest.raises(SourceMissing, match=r"gone\.jsonl"):
        source.reader(0, 1, 0).poll(0, 1)


def test_empty_file_ends(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n \n")
    assert _drain(json_files(tmp_path).reader(0, 1, 0)) == []
