"""Files that grow, are added, rotated and compressed while they are read, and between runs: every line exactly once.

Restarts go back to any snapshot; in record form a reader polls, in batch form it names runs that another one reads.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.connectors import json_files, lines_reader
from penstock.connectors.base import Position, Run, SourceReader

LOOK_US = 1_000_000
Line = tuple[bytes, str]


class Files(RuleBasedStateMachine):
    """A directory that is followed by some partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.texts: dict[str, bytes] = {}
        """What was written to each file, by its name now; plain ones."""
        self.packed: dict[str, bytes] = {}
        self.files = 0
        self.numbers = 0
        self.now_us = 0
        self.out: list[Counter[bytes]] = []
        self.pending: list[tuple[int, Run]] = []

    @initialize(partitions=st.integers(1, 3), block_bytes=st.sampled_from([3, 40, 1 << 18]))
    def start(self, partitions: int, block_bytes: int) -> None:
        self.old_bytes, lines_reader.READ_BYTES = lines_reader.READ_BYTES, block_bytes
        self.old_fair, lines_reader._FAIR_BYTES = lines_reader._FAIR_BYTES, 50
        self.partitions = partitions
        self.out = [Counter() for _ in range(partitions)]
        self.readers: list[SourceReader] = []
        self.begin({})
        self.snapshots = [self.taken()]

    def begin(self, positions: dict[int, Position]) -> None:
        """A new run: the driver finds the files and deals them out."""
        source = json_files(self.directory, follow=True)
        source.check()
        self.source = source.resumed(positions)
        self.reopen(positions)

    def reopen(self, positions: dict[int, Position]) -> None:
        for reader in self.readers:
            reader.close()
        self.readers = [self.source.reader(i, self.partitions, 0) for i in range(self.partitions)]
        for i, position in positions.items():
            self.readers[i].seek(position)
        self.slot = self.source.reader(0, self.partitions, 0)

    def taken(self) -> tuple[dict[int, Position], list[Counter[bytes]]]:
        """A snapshot; what slots have not read yet is read first, as a marker waits for it."""
        self.read_runs()
        return {i: reader.position() for i, reader in enumerate(self.readers)}, [Counter(each) for each in self.out]

    # --- what happens to the files ------------------------------------------------------------------------------------

    def write(self, name: str, text: bytes) -> None:
        self.texts[name] = self.texts.get(name, b"") + text
        with (self.directory / name).open("ab") as file:
            file.write(text)

    def lines(self, count: int, *, whole: bool) -> bytes:
        made = []
        for _ in range(count):
            self.numbers += 1
            made.append(b"line %d %s\n" % (self.numbers, b"x" * (self.numbers * 7 % 40)))
            if self.numbers % 5 == 0:
                made.append(b" \n")
        return b"".join(made) if whole or not made else b"".join(made)[:-3]

    @rule(same=st.booleans(), count=st.integers(0, 4), whole=st.booleans())
    def add(self, same: bool, count: int, whole: bool) -> None:
        self.files += 1
        text = (b"the same line\n" if same else b"") + self.lines(count, whole=whole)
        self.write(f"{self.files:03}.jsonl", text)

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), count=st.integers(1, 4), whole=st.booleans())
    def append(self, data: st.DataObject, count: int, whole: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.texts)))
        self.write(name, self.lines(count, whole=whole))

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), create=st.booleans())
    def rotate(self, data: st.DataObject, create: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.texts)))
        self.files += 1
        target = f"{self.files:03}.rotated.jsonl"
        (self.directory / name).rename(self.directory / target)
        self.texts[target] = self.texts.pop(name)
        if create:
            self.write(name, self.lines(2, whole=True))

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def pack(self, data: st.DataObject) -> None:
        """As gzip does: the copy is there before the original goes."""
        name = data.draw(st.sampled_from(sorted(self.texts)))
        if not self.texts[name].endswith(b"\n"):
            self.write(name, b"\n")
        (self.directory / f"{name}.gz").write_bytes(gzip.compress(self.texts[name]))
        if data.draw(st.booleans()):
            self.look()
        (self.directory / name).unlink()
        self.packed[f"{name}.gz"] = self.texts.pop(name)

    # --- what readers do ----------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 6))
    def poll(self, count: int) -> None:
        self.now_us += LOOK_US
        for i, reader in enumerate(self.readers):
            batch = reader.poll(self.now_us, count)
            if batch is not None:
                rows = [row.value for row in batch.rows]
                self.out[i].update(rows)
                assert [row.value for row in self.slot.rows(Run(batch.at, len(rows)))] == rows

    @rule(count=st.integers(1, 6))
    def skip(self, count: int) -> None:
        self.now_us += LOOK_US
        for i, reader in enumerate(self.readers):
            due = reader.due_records(self.now_us)
            if due:
                self.pending += [(i, run) for run in reader.skip(min(count, due))]

    @rule()
    def read_runs(self) -> None:
        for i, run in self.pending:
            self.out[i].update(self.slot.read(run).columns.column(0).to_pylist())
        self.pending.clear()

    def look(self) -> None:
        self.poll(1)

    # --- snapshots and restarts ---------------------------------------------------------------------------------------

    @rule()
    def snapshot(self) -> None:
        self.snapshots.append(self.taken())

    @rule(data=st.data(), new_run=st.booleans())
    def restart(self, data: st.DataObject, new_run: bool) -> None:
        # Within a run a worker comes back; files are dealt out as the driver did it.
        at = data.draw(st.integers(0, len(self.snapshots) - 1)) if new_run else len(self.snapshots) - 1
        positions, out = self.snapshots[at]
        del self.snapshots[at + 1 :]
        self.out = [Counter(each) for each in out]
        self.pending.clear()
        if new_run:
            self.begin(positions)
        else:
            self.reopen(positions)

    @invariant()
    def nothing_is_there_that_was_not_written(self) -> None:
        assert not self.read() - self.written(whole=False)

    def written(self, *, whole: bool) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for text in [*self.texts.values(), *self.packed.values()]:
            lines = text.split(b"\n")
            found.update(filter(None, map(bytes.strip, lines[:-1] if whole else lines)))
        return found

    def read(self) -> Counter[bytes]:
        return sum(self.out, Counter[bytes]())

    def teardown(self) -> None:
        try:
            if self.out:
                self.read_runs()
                silent = 0
                while silent < 10:  # a poll may find nothing while it passes over a file
                    before = self.read()
                    self.poll(1_000)
                    silent = silent + 1 if self.read() == before else 0
                assert self.read() == self.written(whole=True)
                for reader in [*self.readers, self.slot]:
                    reader.close()
                lines_reader.READ_BYTES, lines_reader._FAIR_BYTES = self.old_bytes, self.old_fair
        finally:
            shutil.rmtree(self.directory)


TestFiles = Files.TestCase
TestFiles.settings = settings(max_examples=100, stateful_step_count=30, deadline=None, report_multiple_bugs=False)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 4))
def test_files_are_dealt_out_evenly(counts: list[int], partitions: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for i, count in enumerate(counts):
            (Path(directory) / f"{i}.jsonl").write_text("".join(f"{i} {n}\n" for n in range(count)))
        source = json_files(directory)
        read = []
        for partition in range(partitions):
            reader = source.reader(partition, partitions, 0)
            rows = []
            while reader.wake_us(0) is not None:
                batch = reader.poll(0, 100)
                rows += [] if batch is None else [row.value for row in batch.rows]
            read.append(rows)
        files = [len({row.split()[0] for row in rows}) for rows in read]
        assert max(files) - min(files) <= 1
        assert sorted(row for rows in read for row in rows) == sorted(
            f"{i} {n}".encode() for i, count in enumerate(counts) for n in range(count)
        )
