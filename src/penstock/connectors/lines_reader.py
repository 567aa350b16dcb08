"""Reads one partition of `json_files`: the lines of its files, from any position, while they grow or until they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec
import pyarrow as pa
from msgspec import structs

from penstock.connectors.base import Position, Run, SourceBatch, SourceColumns, SourceReader, Spot, check_count
from penstock.connectors.lines import READ_BYTES, SPACES, TAIL_BYTES, Block, Content, Lines, cut, fingerprint
from penstock.connectors.tracking import Entry, FileState, Tracker, find, redealt
from penstock.errors import SourceChanged, SourceMissing, SourceUnreadable
from penstock.types import Record, Schema

SCHEMA = Schema.parse("value binary not null")
_AHEAD_RECORDS = 64 * 1024
_STEPS_MAX = 16
"""Files that are opened, and pieces of a packed file that are passed over, in one poll."""
_MOVE_BYTES = 4 * 1024 * 1024
_FAIR_BYTES = 4 * 1024 * 1024
"""After so many bytes of a file that grows, others have their turn."""
_LOOK_US = 10_000
_LOOK_FILE_US = 100
"""Between two looks at the files, for each of them: looking takes a small part of the time however many they are."""
_RECORD_BYTES = 200
_OFF_MAX = 1.5
"""The estimate of a record's size is put right when it is wrong by more than this; else every change of it would look
like records that arrive."""


class At(msgspec.Struct, array_like=True, frozen=True):
    """Where a run of lines begins."""

    path: str
    inode: int
    key: int
    byte: int
    line: int
    size: int
    """So many bytes hold its lines, or the first of them where other runs have joined it."""
    tail: int
    """Fingerprint of the end of those bytes."""
    header: bool = False

    def state(self) -> FileState:
        """That of a file of which these lines were read."""
        return FileState(self.path, self.inode, self.key, self.byte + self.size, tail=self.tail, header=self.header)

    def joined(self, other: At) -> At:
        """Both, where the other follows."""
        return structs.replace(self, size=self.size + other.size, tail=other.tail)


class _Position(msgspec.Struct, array_like=True):
    records: int
    files: list[FileState]


_encode = msgspec.msgpack.Encoder().encode
_decode_at = msgspec.msgpack.Decoder(At).decode
_decode_position = msgspec.msgpack.Decoder(_Position).decode


def files_in(position: Position) -> list[FileState]:
    """The files that a position is about."""
    assert isinstance(position, bytes)
    return _decode_position(position).files


def dealt_out(positions: Iterable[Position], partitions: int) -> dict[int, Position]:
    """What so many partitions go on from, in the place of others."""
    read = []
    for position in positions:
        assert isinstance(position, bytes)
        at = _decode_position(position)
        read.append((at.records, at.files))
    return {p: _encode(_Position(*each)) for p, each in enumerate(redealt(read, partitions))}


class _Stream:
    """One file, as far as its lines were cut; what was given out of it is in its state."""

    def __init__(self, state: FileState, spaces: bytes) -> None:
        self.state = state
        self._spaces = spaces
        self.byte, self.line, self.tail = state.byte, state.line, state.tail
        self.before = b""
        self.content: Content | None = None
        self.is_queued = False
        self.queued_bytes = 0
        self.seen: Entry | None = None
        """As it was found when it was queued."""
        self.done: tuple[int, int, int] | None = None
        """Inode, size and time of the last change when its end was reached."""
        self.turn_bytes = 0
        self._rest = b""
        self._ready = False
        self._joins = False
        """The line before has no line break: what follows must begin with one."""

    def open(self, *, by_inode: bool) -> bool:
        """Open the file where it was left, or go on with that; say whether it is there."""
        state = self.state
        if self.content is None:
            content = Content(state.path)
            if by_inode and content.inode != state.inode:
                content.close()
                raise SourceMissing(path=state.path)
            self.content, self._ready, self._rest, self.turn_bytes = content, False, b"", 0
            if self.byte and content.head(whole=True, header=state.header) != state.key:
                raise SourceChanged(path=state.path, problem="its first line has changed")
        if not self._ready:
            if not self.content.move(max(0, self.byte - TAIL_BYTES), _MOVE_BYTES):
                return False
            self.before = self.content.tail(self.byte)
            if len(self.before) < min(self.byte, TAIL_BYTES):
                raise SourceChanged(path=state.path, problem=f"it is shorter than the {self.byte} bytes that were read")
            if fingerprint(self.before) != self.tail:
                raise SourceChanged(path=state.path, problem=f"the bytes before byte {self.byte} have changed")
            self._ready, self._joins = True, bool(self.before) and not self.before.endswith(b"\n")
        return True

    def next_block(self, *, whole: bool, sized: bool) -> Block | None:
        """Cut the next lines; None where more has to be read for that. A block without text is the end, for now."""
        assert self.content is not None
        # A line that is longer than a block is not copied again for every block of it.
        size = max(READ_BYTES, len(self._rest))
        if sized and self.seen is not None:
            size = max(0, min(size, self.seen.size - self.content.at))
        data = self.content.read(size)
        text = self._rest + data
        end = text.rfind(b"\n") + 1
        if not data:
            if whole and self.content.is_cut_off:
                raise SourceUnreadable(path=self.state.path, cause="it ends within its packed data")
            end = len(text) if whole else 0
        text, self._rest = text[:end], text[end:] if data else b""
        if not text and data:
            return None
        if self._joins and text:
            if text.partition(b"\n")[0].strip():
                raise SourceChanged(path=self.state.path, problem="its last line had no line break, and has gone on")
            self._joins = False
        block = Block.of(text, self.byte, self.line, self.before, self._spaces)
        self.byte, self.line, self.before = block.end, block.end_line, block.before()
        self.tail = fingerprint(self.before)
        self.turn_bytes += len(text)
        return block

    def close(self) -> None:
        if self.content is not None:
            self.content.close()
            self.content = None


class LinesReader(SourceReader):
    """Reads lines; blank ones do not count.

    Parameters
    ----------
    look : callable
        Returns the files that there are.
    owned : callable
        Whether the partition has the file with that key.
    follow : bool
        Go on for ever: look for new files and for what was appended. Only whole lines are read then.
    spaces : bytes
        What is left out around a line.
    header : bool
        Files begin with a header.
    sized : bool
        Read a file no further than to the size that it was found with: it may not stay as it is behind that.
    """

    def __init__(
        self,
        look: Callable[[], list[Entry]],
        owned: Callable[[int], bool],
        *,
        follow: bool,
        spaces: bytes = SPACES,
        header: bool = False,
        sized: bool = False,
    ) -> None:
        self._look = look
        self._follow = follow
        self._sized = sized
        self._spaces = spaces
        self._tracker = Tracker(owned, self._loaded, whole=not follow, header=header)
        self._record_bytes = float(_RECORD_BYTES)
        self._read_bytes = self._read_records = 0
        self._again: Content | None = None
        """The file that runs were last read from."""
        self._current: _Stream | None = None
        self._begin()

    def _begin(self) -> None:
        self._next_look_us: int | None = 0
        """None: not again."""
        self._streams: dict[int, _Stream] = {}
        """By the identity of the state."""
        self._queue: deque[_Stream] = deque()
        """Files that may have lines that were not read."""
        self._queued_bytes = 0
        self._held: deque[tuple[_Stream, Block]] = deque()
        self._held_records = 0
        self._last: At | None = None
        self._last_records = 0

    # --- lines --------------------------------------------------------------------------------------------------------

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        self._load(now_us, 1)
        if not self._held_records:
            return None
        _, block = self._held[0]
        count = min(records_max, len(block))
        at, follows = self._next(count)
        lines = self._take(count)
        return SourceBatch(list(map(SCHEMA.record_type, lines.to_pylist())), now_us, _encode(at), follows)

    def wake_us(self, now_us: int) -> int | None:
        return now_us if self._held_records or self._current is not None or self._queue else self._next_look_us

    def due_records(self, now_us: int) -> int | None:
        """Count the lines that are held; one more block is looked at in every call until that is enough."""
        if self._held_records < _AHEAD_RECORDS:
            self._load(now_us, self._held_records + 1)
        return self._held_records

    def skip(self, count: int) -> list[Run]:
        check_count(count, self._held_records)
        runs: list[tuple[At, int]] = []
        while count:
            here = min(count, len(self._held[0][1]))
            at, follows = self._next(here)
            self._take(here)
            if runs and follows:
                begun, records = runs[-1]
                runs[-1] = begun.joined(at), records + here
            else:
                runs.append((at, here))
            count -= here
        return [Run(_encode(at), each) for at, each in runs]

    def recent(self, count: int) -> Run | None:
        return Run(_encode(self._last), min(count, self._last_records)) if self._last is not None else None

    def backlog_records(self, now_us: int) -> int:
        """Estimate them from the bytes that were not read and the size of the records so far."""
        del now_us
        waiting = self._queued_bytes
        if (stream := self._current) is not None and stream.seen is not None:
            done = stream.content.raw_at if stream.content is not None else stream.byte
            waiting += max(0, stream.seen.size - done)
        return self._held_records + int(waiting / self._record_bytes)

    def _next(self, count: int) -> tuple[At, bool]:
        """Where the next lines are, of the first block; and whether they follow those before them in their file."""
        stream, block = self._held[0]
        state, last = stream.state, self._last
        byte, end = block.byte, block.byte_of(block.given + count)
        at = At(state.path, state.inode, state.key, byte, block.line, end - byte, block.tail(end), state.header)
        follows = last is not None and (last.path, last.byte + last.size) == (at.path, byte)
        if last is None or not follows or self._last_records > _AHEAD_RECORDS:
            self._last, self._last_records = at, 0
        else:
            self._last = last.joined(at)
        self._last_records += count
        return at, follows

    def _take(self, count: int) -> pa.Array:
        """Give out the next lines of the first block."""
        lines = self._held[0][1].take(count)
        self._held_records -= count
        self.offset += count
        self._settle()
        return lines

    def _settle(self) -> None:
        """Write down how far the files were read, and let go of blocks that are done."""
        while self._held:
            stream, block = self._held[0]
            stream.state.byte, stream.state.line = block.byte, block.line
            if len(block):
                break
            stream.state.tail = block.tail(block.byte)
            stream.state.ended = block.first == block.end
            self._held.popleft()

    def _loaded(self, state: FileState) -> FileState | None:
        """How far a file was cut into lines: what is held of it must be in the file that is taken for it."""
        stream = self._streams.get(id(state))
        if stream is None:
            return None
        return structs.replace(state, byte=stream.byte, line=stream.line, tail=stream.tail, ended=False)

    def _note_tail(self) -> None:
        """Bring the only state up to date whose block is given out in part."""
        if self._held:
            stream, block = self._held[0]
            stream.state.tail = block.tail(block.byte)

    # --- files --------------------------------------------------------------------------------------------------------

    def _load(self, now_us: int, records: int) -> None:
        """Hold more lines until there are so many, as far as that does not take long."""
        if self._next_look_us is not None and now_us >= self._next_look_us:
            self._look_around(now_us)
        for _ in range(_STEPS_MAX):
            if self._held_records >= records or (self._current is None and not self._queue):
                break
            self._step()

    def _look_around(self, now_us: int) -> None:
        self._note_tail()
        listed = self._look()
        found = self._tracker.look(listed)
        streams = {}
        for state, entry in found:
            stream = streams[id(state)] = self._streams.get(id(state)) or _Stream(state, self._spaces)
            if stream.content is not None and stream.content.inode != entry.inode:
                stream.close()  # another file is read on in its place, which is the same as far as this one was read
            if stream is not self._current and not stream.is_queued and stream.done != _mark(entry):
                stream.seen = entry
                self._enqueue(stream)
        self._streams = streams
        self._next_look_us = now_us + max(_LOOK_US, _LOOK_FILE_US * len(listed)) if self._follow else None

    def _enqueue(self, stream: _Stream) -> None:
        assert stream.seen is not None
        stream.is_queued, stream.queued_bytes = True, max(0, stream.seen.size - stream.byte)
        self._queued_bytes += stream.queued_bytes
        self._queue.append(stream)

    def _step(self) -> None:
        """Open a file, pass over a piece of it, or cut a block."""
        stream = self._current
        if stream is None:
            stream = self._current = self._queue.popleft()
            stream.is_queued = False
            self._queued_bytes -= stream.queued_bytes
        try:
            if not stream.open(by_inode=self._follow):
                return
        except SourceMissing:
            if not self._follow:
                raise
            self._current = None  # just renamed: the next look finds out
            return
        assert stream.content is not None
        raw_at = stream.content.raw_at
        block = stream.next_block(whole=not self._follow, sized=self._sized)
        if block is None:
            return
        self._learn(len(block), stream.content.raw_at - raw_at)
        self._held.append((stream, block))
        self._held_records += len(block)
        if block.first == block.end:
            stream.done = _mark(stream.seen)
        elif not (self._follow and self._queue and stream.turn_bytes >= _FAIR_BYTES and not stream.content.is_packed):
            self._settle()
            return
        stream.close()
        self._current = None
        if block.first != block.end:
            self._enqueue(stream)
        self._settle()

    def _learn(self, records: int, size_bytes: int) -> None:
        self._read_records += records
        self._read_bytes += size_bytes
        if self._read_records and self._read_bytes:
            each = self._read_bytes / self._read_records
            if not 1 / _OFF_MAX <= each / self._record_bytes <= _OFF_MAX:
                self._record_bytes = each

    # --- positions ----------------------------------------------------------------------------------------------------

    def position(self) -> Position:
        self._note_tail()
        return _encode(_Position(self.offset, self._tracker.known()))

    def seek(self, position: Position) -> None:
        assert isinstance(position, bytes)
        at = _decode_position(position)
        self.close()
        self._begin()
        self.offset = at.records
        self._tracker.restore(at.files)

    # --- reading again ------------------------------------------------------------------------------------------------

    def read(self, run: Run) -> SourceColumns:
        _, lines = self._lines(run)
        return SourceColumns(pa.RecordBatch.from_arrays([lines.values], schema=SCHEMA.arrow), 0)

    def rows(self, run: Run) -> list[Record]:
        _, lines = self._lines(run)
        return list(map(SCHEMA.record_type, lines.values.to_pylist()))

    def spots(self, run: Run, indexes: Sequence[int]) -> list[Spot]:
        """Say where some lines of a run are."""
        at, lines = self._lines(run)
        starts, numbers = lines.starts, lines.numbers
        return [Spot(at.byte + int(starts[i]), at.path, at.line + int(numbers[i]) + 1) for i in indexes]

    def _lines(self, run: Run) -> tuple[At, Lines]:
        """Read the lines of a run, and no more than them where it can be told."""
        check_count(run.count, None)
        assert isinstance(run.at, bytes)
        at = _decode_at(run.at)
        if self._again is None or (self._again.path, self._again.inode) != (at.path, at.inode):
            if self._again is not None:
                self._again.close()
            self._again = find(at.state())
        content = self._again
        content.move(at.byte)
        text, size = b"", at.size
        while True:
            while len(text) < size and (data := content.read(size - len(text))):
                text += data
            ends = len(text) < size
            lines = cut(text if ends or size == at.size else text[: text.rfind(b"\n") + 1], self._spaces)
            if len(lines.values) >= run.count:
                lines.values = lines.values.slice(0, run.count)
                return at, lines
            if ends:
                raise SourceChanged(path=at.path, problem=f"lines behind byte {at.byte} are missing")
            size = max(2 * size, READ_BYTES)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None
        if self._again is not None:
            self._again.close()
            self._again = None


def _mark(entry: Entry | None) -> tuple[int, int, int] | None:
    return None if entry is None else (entry.inode, entry.size, entry.changed_ns)
