"""Which file is which: renamed, copied, compressed, gone, or another one in its place."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from penstock.connectors import json_files, lines_reader, tracking
from penstock.connectors.base import SourceReader
from penstock.connectors.tracking import entries
from penstock.errors import SourceChanged, SourceMissing


class Play:
    """One reader that follows a directory, or another path."""

    def __init__(self, directory: Path, path: Path | None = None) -> None:
        self.directory = directory
        self.path = path or directory
        self.now_us = 0
        self.reader: SourceReader = json_files(self.path, follow=True).reader(0, 1, 0)

    def write(self, name: str, text: str) -> None:
        with (self.directory / name).open("a") as file:
            file.write(text)

    def read(self) -> list[str]:
        """All that there is to read by now."""
        found = []
        for _ in range(5):
            self.now_us += 1_000_000
            while (batch := self.reader.poll(self.now_us, 100)) is not None:
                found += [row.value.decode() for row in batch.rows]
        return found

    def restart(self) -> None:
        """As a run that is resumed."""
        position = self.reader.position()
        self.reader.close()
        self.reader = json_files(self.path, follow=True).resumed({0: position}).reader(0, 1, 0)
        self.reader.seek(position)


@pytest.fixture(params=["running", "restarted"])
def between(request: pytest.FixtureRequest) -> str:
    """Whether things happen while the source is read, or between two runs."""
    return str(request.param)


def play_of(directory: Path, between: str, path: Path | None = None) -> Play:
    play = Play(directory, path)
    if between == "restarted":
        read = play.read

        def restarted() -> list[str]:
            play.restart()
            return read()

        play.read = restarted  # type: ignore[method-assign]
    return play


def test_a_rotated_file_is_read_to_its_end_under_any_name(tmp_path: Path, between: str) -> None:
    play = play_of(tmp_path, between)
    play.write("log.jsonl", "1\n2\n")
    assert play.read() == ["1", "2"]
    for n in range(3):
        if (tmp_path / "log.jsonl.1").exists():
            (tmp_path / "log.jsonl.1").rename(tmp_path / "log.jsonl.2")  # which takes the place of the one before
        (tmp_path / "log.jsonl").rename(tmp_path / "log.jsonl.1")
        play.write("log.jsonl.1", f"late {n}\n")
        play.write("log.jsonl", f"new {n}\n")
        assert sorted(play.read()) == [f"late {n}", f"new {n}"]


def test_a_single_file_is_followed_through_a_rotation(tmp_path: Path, between: str) -> None:
    play = play_of(tmp_path, between, tmp_path / "log.jsonl")
    assert play.read() == []
    play.write("other.jsonl", "not this one\n")
    play.write("log.jsonl", "1\n")
    assert play.read() == ["1"]
    (tmp_path / "log.jsonl").rename(tmp_path / "log.old")
    play.write("log.old", "2\n")
    assert play.read() == ["2"]
    play.write("log.jsonl", "3\n")
    play.write("log.old", "4\n")
    assert sorted(play.read()) == ["3", "4"]


def test_a_file_that_was_read_may_go(tmp_path: Path, between: str) -> None:
    """Its inode is often given to the next file, which is not it."""
    play = play_of(tmp_path, between)
    for n in range(20):
        play.write(f"{n}.jsonl", f"the same\n{n}\n")
        assert play.read() == ["the same", str(n)]
        (tmp_path / f"{n}.jsonl").unlink()


def test_only_so_many_that_are_gone_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "GONE_MAX", 3)
    play = Play(tmp_path)
    sizes = []
    for n in range(10):
        play.write(f"{n}.jsonl", f"{n}\n")
        assert play.read() == [str(n)]
        (tmp_path / f"{n}.jsonl").unlink()
        play.read()
        sizes.append(len(play.reader.position()))  # type: ignore[arg-type]
    assert max(sizes[4:]) <= sizes[3] + 3


def test_a_file_that_comes_back_is_not_read_again(tmp_path: Path, between: str) -> None:
    play = play_of(tmp_path, between)
    play.write("a.jsonl", "1\n2\n")
    assert play.read() == ["1", "2"]
    shutil.move(tmp_path / "a.jsonl", tmp_path / ".away")
    assert play.read() == []
    shutil.move(tmp_path / ".away", tmp_path / "a.jsonl")
    play.write("a.jsonl", "3\n")
    assert play.read() == ["3"]
    (tmp_path / "a.jsonl").unlink()
    assert play.read() == []
    play.write("a.jsonl", "another\n")
    with pytest.raises(SourceChanged, match=r"a\.jsonl.*taken its place"):
        play.read()


def test_a_file_that_goes_unread_is_missed(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.write("a.jsonl", "1\n2\n")
    assert play.reader.poll(0, 1) is not None
    (tmp_path / "a.jsonl").unlink()
    play.restart()
    with pytest.raises(SourceMissing, match=r"a\.jsonl"):
        play.read()


def test_a_compressed_copy_is_the_file_itself(tmp_path: Path, between: str) -> None:
    play = play_of(tmp_path, between)
    play.write("a.jsonl", "1\n2\n3\n")
    assert play.read() == ["1", "2", "3"]
    play.write("a.jsonl", "4\n")
    whole = gzip.compress((tmp_path / "a.jsonl").read_bytes())
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-5])  # in the making
    assert play.read() == ["4"]
    (tmp_path / "a.jsonl.gz").write_bytes(whole)
    assert play.read() == []
    (tmp_path / "a.jsonl").unlink()
    assert play.read() == []
    (tmp_path / "a.jsonl.gz").rename(tmp_path / "archive.1.gz")
    play.write("a.jsonl", "5\n")
    assert play.read() == ["5"]


def test_copies_with_names_of_their_own_are_files_of_their_own(tmp_path: Path, between: str) -> None:
    play = play_of(tmp_path, between)
    play.write("a.jsonl", "1\n2\n")
    assert play.read() == ["1", "2"]
    shutil.copy(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert play.read() == ["1", "2"]
    play.write("a.jsonl", "3\n")
    play.write("b.jsonl", "4\n")
    assert sorted(play.read()) == ["3", "4"]


def test_a_file_that_was_restored_from_a_copy_is_read_on(tmp_path: Path, between: str) -> None:
    """With another inode: by what is in it."""
    play = play_of(tmp_path, between)
    play.write("a.jsonl", "1\n2\n")
    assert play.read() == ["1", "2"]
    shutil.copy(tmp_path / "a.jsonl", tmp_path / ".copy")
    (tmp_path / ".copy").rename(tmp_path / "a.jsonl")
    play.write("a.jsonl", "3\n")
    assert play.read() == ["3"]


def test_a_file_that_is_cut_or_written_anew_is_refused(tmp_path: Path, between: str) -> None:
    for content in ("1\n", "1\nx\n", "1\nx\n3\n", "x\n2\n3\n"):
        for old in tmp_path.iterdir():
            old.unlink()
        play = play_of(tmp_path, between)
        play.write("a.jsonl", "1\n2\n")
        assert play.read() == ["1", "2"]
        (tmp_path / "a.jsonl").write_text(content)
        with pytest.raises(SourceChanged, match=r"a\.jsonl"):
            play.read()


def test_a_last_line_without_a_break_may_not_go_on(tmp_path: Path) -> None:
    """It was read as a line, because the source was to end."""
    (tmp_path / "a.jsonl").write_text("1\n2")

    def again(position: bytes | int | None) -> tuple[list[bytes], bytes | int]:
        source = json_files(tmp_path)
        reader = source.reader(0, 1, 0)
        if position is not None:
            reader.seek(position)
        found = []
        while reader.wake_us(0) is not None:
            batch = reader.poll(0, 10)
            found += [] if batch is None else [row.value for row in batch.rows]
        return found, reader.position()

    read, position = again(None)
    assert read == [b"1", b"2"]
    (tmp_path / "a.jsonl").write_text("1\n2 \n3\n")
    read, later = again(position)
    assert read == [b"3"]
    (tmp_path / "a.jsonl").write_text("1\n23\n")
    with pytest.raises(SourceChanged, match="had no line break, and has gone on"):
        again(position)
    (tmp_path / "a.jsonl").write_text("1\n2 \n3\n4\n")
    assert again(later)[0] == [b"4"]


def test_a_run_is_found_by_its_own_bytes_not_by_the_first_line_alone(tmp_path: Path) -> None:
    """A file of the same first line may have got the inode of one that was compressed."""
    play = Play(tmp_path)
    play.write("a.jsonl", "the same\n1\n")
    assert play.reader.due_records(0) == 2
    runs = play.reader.skip(2)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    (tmp_path / "a.jsonl").unlink()
    play.write("b.jsonl", "the same\n")
    slot = json_files(tmp_path, follow=True).reader(0, 1, 0)
    assert [row.value for run in runs for row in slot.rows(run)] == [b"the same", b"1"]


def test_lines_that_were_read_ahead_belong_to_the_file_that_is_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files begin alike, both are compressed, and inodes go from one to the other."""
    monkeypatch.setattr(lines_reader, "READ_BYTES", 3)
    play = Play(tmp_path)
    play.write("a.jsonl", "the same\n1\n")
    play.write("b.jsonl", "the same\n2\n")
    batch = play.reader.poll(0, 1)
    assert batch is not None
    found = [row.value.decode() for row in batch.rows]
    for name in ("b.jsonl", "a.jsonl"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        (tmp_path / name).unlink()
    play.write("c.jsonl", "3\n")
    assert sorted(found + play.read()) == ["1", "2", "3", "the same", "the same"]


def test_every_reader_agrees_on_whose_file_it_is(tmp_path: Path) -> None:
    """Files that are there, that come later, and that are renamed: one partition has each."""
    for n in range(5):
        (tmp_path / f"{n}.jsonl").write_text(f"{n}\n")
    source = json_files(tmp_path, follow=True)
    readers = [source.reader(i, 3, 0) for i in range(3)]
    for n in range(5, 12):
        (tmp_path / f"{n}.jsonl").write_text(f"{n}\n")
    found: list[list[bytes]] = [[], [], []]
    for n in range(12):
        for i, (reader, rows) in enumerate(zip(readers, found, strict=True)):
            if i == n % 3:
                (tmp_path / f"{n}.jsonl").rename(tmp_path / f"renamed-{n}.jsonl")
            batch = reader.poll(n * 1_000_000, 1)
            rows += [] if batch is None else [row.value for row in batch.rows]
    assert sorted(row for rows in found for row in rows) == sorted(str(n).encode() for n in range(12))
    assert all(len(rows) >= 1 for rows in found)


def test_what_is_listed(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.json.gz", "c.ndjson", "d.txt", ".e.jsonl", "f.gz"):
        (tmp_path / name).write_text("")
    (tmp_path / "g.jsonl").mkdir()
    assert [Path(each.path).name for each in entries(str(tmp_path))] == ["a.jsonl", "b.json.gz", "c.ndjson"]
    assert [Path(each.path).name for each in entries(str(tmp_path / "*.txt"))] == ["d.txt"]
    assert [Path(each.path).name for each in entries(str(tmp_path / "d.txt"))] == ["d.txt"]
    assert entries(str(tmp_path / "none")) == []
