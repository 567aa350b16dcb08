"""The JSON-lines source: which files, in which order, from any offset."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from penstock.connectors import json_files
from penstock.connectors.base import SourceReader
from penstock.errors import InvalidOption, SourceMissing
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


_PIECES = st.sampled_from(
    [b"a", b'{"n": 1}', b"\n", b"\n", b"\r\n", b" ", b"\t", b"\x0b", b" " * 20, b"\xc3\xa9", b"x" * 40, b"\x00"]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.lists(_PIECES, max_size=30).map(b"".join), min_size=1, max_size=3),
    block_bytes=st.sampled_from([1, 7, 64, 1 << 18]),
    mark_bytes=st.sampled_from([1, 50, 1 << 24]),
    steps=st.lists(
        st.tuples(st.sampled_from(["poll", "read", "seek", "due"]), st.integers(0, 40)),
        max_size=15,
    ),
)
def test_lines_are_the_same_in_any_order_and_form(
    tmp_path: Path, files: list[bytes], block_bytes: int, mark_bytes: int, steps: list[tuple[str, int]]
) -> None:
    """Blocks of any size, marks of any distance, going back and forth: always the lines as Python cuts them."""
    for old in tmp_path.iterdir():
        old.unlink()
    for i, content in enumerate(files):
        (tmp_path / f"{i}.jsonl").write_bytes(content)
    expected = [line for content in files for line in map(bytes.strip, content.split(b"\n")) if line]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[type(json_files("x")).__module__], "_READ_BYTES", block_bytes)
        patch.setattr(sys.modules[type(json_files("x")).__module__], "_MARK_BYTES", mark_bytes)
        reader = json_files(tmp_path).reader(0, 1, 0)
        for step, number in steps:
            offset = reader.offset
            got: list[bytes] = []
            if step == "seek":
                reader.seek(min(number, len(expected)))
                assert reader.offset == min(number, len(expected))
                continue
            if step == "due":
                due = reader.due_records(0)
                assert due is not None
                assert (due > 0) == (offset < len(expected)) == (reader.wake_us(0) is not None)
                assert offset + due <= len(expected)
                continue
            if step == "poll":
                batch = reader.poll(0, number + 1)
                got = [] if batch is None else [row.value for row in batch.rows]
                assert (got == []) == (offset == len(expected))
            elif 0 < number <= len(expected) - offset:
                read = reader.read(number)
                read.columns.validate(full=True)
                got = read.columns.column(0).to_pylist()
                assert (len(got), read.due_us) == (number, 0)
            else:
                with pytest.raises(InvalidOption, match="count"):
                    reader.read(0 if number == 0 else len(expected) - offset + 1)
            assert got == expected[offset : offset + len(got)]
            assert reader.offset == offset + len(got)
        reader.close()
