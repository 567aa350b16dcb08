"""The JSON-lines source: which files, in which order, from any position."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from penstock.connectors import json_files, lines_reader
from penstock.connectors.base import Run, SourceReader
from penstock.errors import CheckpointMismatch, InvalidOption, SourceMissing, SourceUnreadable
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
    assert source.partitions(8) == 8, "a file may be added between two runs"
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
def test_any_position_is_gone_on_from(tmp_path: Path, size: int) -> None:
    """Also with lines so long that every one is read on its own."""
    lines = [f"{i}".encode() * size for i in range(10)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines[:5]) + b"\n")
    (tmp_path / "b.jsonl").write_bytes(b"\n\n" + b"\n".join(lines[5:]))
    source = json_files(tmp_path)
    reader = source.reader(0, 1, 0)
    positions = [reader.position()]
    while reader.poll(0, 1) is not None:
        positions.append(reader.position())
    assert len(positions) == len(lines) + 1
    for offset in (0, 9, 4, 5, 10, 3):
        reader.seek(positions[offset])
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
    packed=st.booleans(),
    steps=st.lists(
        st.tuples(st.sampled_from(["poll", "skip", "seek", "due"]), st.integers(0, 40)),
        max_size=15,
    ),
)
def test_lines_are_the_same_in_any_order_and_form(
    tmp_path: Path, files: list[bytes], block_bytes: int, packed: bool, steps: list[tuple[str, int]]
) -> None:
    """Blocks of any size, going back to any position: always the lines as Python cuts them, where it says they are."""
    for old in tmp_path.iterdir():
        old.unlink()
    for i, content in enumerate(files):
        (tmp_path / f"{i}.jsonl").write_bytes(gzip.compress(content) if packed else content)
    expected = [
        (f"{i}.jsonl", number + 1, line)
        for i, content in enumerate(files)
        for number, line in enumerate(map(bytes.strip, content.split(b"\n")))
        if line
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_reader, "READ_BYTES", block_bytes)
        source = json_files(tmp_path)
        reader, again = source.reader(0, 1, 0), source.reader(0, 1, 0)
        positions = {0: reader.position()}
        for step, number in steps:
            offset = reader.offset
            if step == "seek":
                offset = sorted(positions)[number % len(positions)]
                reader.seek(positions[offset])
                assert reader.offset == offset
                continue
            due = reader.due_records(0)
            while not due and reader.wake_us(0) is not None:
                due = reader.due_records(0)
            assert (due > 0) == (offset < len(expected)) == (reader.wake_us(0) is not None)
            assert offset + due <= len(expected)
            if step == "due":
                assert (reader.backlog_records(0) > 0) == (due > 0)
                continue
            if step == "poll":
                batch = reader.poll(0, number + 1)
                runs = [] if batch is None else [Run(batch.at, len(batch.rows))]
                rows = [] if batch is None else [row.value for row in batch.rows]
                assert rows == [line for _, _, line in expected[offset : reader.offset]]
            elif 0 < number <= due:
                runs = reader.skip(number)
                assert sum(run.count for run in runs) == number
            else:
                with pytest.raises(InvalidOption, match="count"):
                    reader.skip(0 if number == 0 else due + 1)
                continue
            positions[reader.offset] = reader.position()
            got = []
            for run in runs:
                read = again.read(run)
                read.columns.validate(full=True)
                values = read.columns.column(0).to_pylist()
                assert values == [row.value for row in again.rows(run)]
                spots = source.spots(run, range(run.count))
                assert all(files[int(Path(s.file or "").stem)][s.offset :].lstrip()[: len(v)] == v
                           for s, v in zip(spots, values, strict=True))  # fmt: skip
                got += [(Path(s.file or "").name, s.line, v) for s, v in zip(spots, values, strict=True)]
            assert got == expected[offset : reader.offset]
        reader.close()
        again.close()


def test_a_batch_says_whether_it_follows_the_one_before(tmp_path: Path) -> None:
    """Then both are one run, which is read again as a whole."""
    (tmp_path / "a.jsonl").write_text("1\n2\n\n3\n4\n")
    (tmp_path / "b.jsonl").write_text("5\n6\n")
    reader = json_files(tmp_path).reader(0, 1, 0)
    runs: list[Run] = []
    while (batch := reader.poll(0, 1)) is not None:
        if batch.follows:
            runs[-1] = Run(runs[-1].at, runs[-1].count + len(batch.rows))
        else:
            runs.append(Run(batch.at, len(batch.rows)))
    assert [run.count for run in runs] == [4, 2]
    assert [[row.value for row in reader.rows(run)] for run in runs] == [[b"1", b"2", b"3", b"4"], [b"5", b"6"]]


def test_the_backlog_is_estimated_from_the_bytes_that_wait(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x" * 99 + b"\n")
    (tmp_path / "b.jsonl").write_bytes((b"x" * 99 + b"\n") * 50_000)
    reader = json_files(tmp_path).reader(0, 1, 0)
    assert reader.poll(0, 1) is not None
    assert reader.poll(0, 1) is not None
    assert 45_000 < reader.backlog_records(0) < 55_000
    while reader.poll(0, 10_000) is not None:
        pass
    assert reader.backlog_records(0) == 0


def test_a_checkpoint_that_counts_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    with pytest.raises(CheckpointMismatch, match="counts lines"):
        json_files(tmp_path).resumed({0: 3})


def test_a_gzip_file_without_its_end_is_refused_by_name(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"%d\n" % i for i in range(10_000)))
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-20])
    with pytest.raises(SourceUnreadable, match=r"a\.jsonl\.gz.*ends within"):
        _drain(json_files(tmp_path).reader(0, 1, 0), 100_000)
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:50] + b"xxxxxxxxxxxx" + whole[62:])
    with pytest.raises(SourceUnreadable, match=r"a\.jsonl\.gz.*damaged"):
        _drain(json_files(tmp_path).reader(0, 1, 0), 100_000)
