"""Which files there are, and which of them were read how far: files that grow, are added, renamed or compressed.

A file is known by its first line, or by the first two where the first is a header: a fingerprint of that, its *key*,
never changes while the file only grows, and stays when it is renamed or compressed. How far it was read is a byte, with
a fingerprint of the bytes before it.

==========================================  =====================================================================
what is found for a file that was read      effect
==========================================  =====================================================================
same path, same inode                       it is read on; the bytes before its position are compared first
same inode elsewhere, same bytes            it was renamed: it is read on there
another file with the same bytes            it was copied or compressed, and is gone itself: it is read on there
nothing; all that was seen of it was read   it is gone, and remembered for a while
nothing; some of it was not read            refused: it is missing
another file in its place, other bytes      refused: it has changed
shorter than what was read of it            refused: it was cut
==========================================  =====================================================================

A file that was found for none of them is new, unless it is ``X.gz`` or ``X.zst`` beside an ``X`` with the same first
line: that is a copy in the making, or one whose original will go.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from penstock.connectors.lines import Content, fingerprint
from penstock.errors import SourceChanged, SourceMissing, SourceUnreadable

GONE_MAX = 1_000
"""Files that are gone and remembered: one of them that comes back is not read again."""
NO_TAIL = fingerprint(b"")
PACKED = (".gz", ".zst")
SUFFIXES = tuple(suffix + packed for suffix in (".jsonl", ".ndjson", ".json") for packed in ("", *PACKED))


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it was found; ``key`` where it was looked at already."""

    path: str
    inode: int
    size: int
    changed_ns: int
    key: int | None = None


class FileState(msgspec.Struct, array_like=True):
    """How far a file was read."""

    path: str
    inode: int
    key: int
    byte: int = 0
    line: int = 0
    """How many line breaks there are before ``byte``."""
    tail: int = NO_TAIL
    """Fingerprint of the bytes before ``byte``."""
    ended: bool = False
    """All that was seen of it was read."""
    gone: bool = False
    header: bool = False
    """It begins with a header, as others do: its key is that of its first two lines."""

    def follows(self, content: Content) -> bool:
        """Whether a file has the bytes that were read of this one."""
        return (
            content.head(whole=True, header=self.header) == self.key
            and fingerprint(content.tail(self.byte)) == self.tail
        )


class _Read(Protocol):
    path: str
    key: int


F = TypeVar("F", bound=_Read)


def redealt(read: Iterable[tuple[int, list[F]]], partitions: int) -> list[tuple[int, list[F]]]:
    """Deal files that were read out to other partitions, in turn by name; the records are counted in the first one.

    Whose file one is follows from its key, so files of one key stay together.
    """
    before = list(read)
    dealt: list[list[F]] = [[] for _ in range(partitions)]
    owners: dict[int, int] = {}
    for file in sorted((file for _, files in before for file in files), key=lambda each: each.path):
        dealt[owners.setdefault(file.key, len(owners) % partitions)].append(file)
    records = sum(each for each, _ in before)
    return [(0 if partition else records, files) for partition, files in enumerate(dealt)]


def entries(path: str, suffixes: tuple[str, ...] = SUFFIXES) -> list[Entry]:
    """The files of a directory that have such a suffix, those of a pattern, or a single one, by name."""
    place = Path(path)
    if place.is_dir():
        found = [each for each in _files(path) if each.path.endswith(suffixes)]
    elif place.exists():
        found = list(filter(None, [_entry(path)]))
    else:
        # Path.glob takes no absolute patterns.
        found = list(filter(None, map(_entry, glob.glob(path))))  # noqa: PTH207
    return sorted(found, key=lambda each: each.path)


def _files(directory: str) -> list[Entry]:
    try:
        with os.scandir(directory or ".") as found:
            paths = [each.path if directory else each.name for each in found if not each.name.startswith(".")]
    except FileNotFoundError:
        return []
    return list(filter(None, map(_entry, paths)))


def _entry(path: str) -> Entry | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None  # just renamed or removed
    return Entry(path, found.st_ino, found.st_size, found.st_mtime_ns) if _is_file(found.st_mode) else None


def _is_file(mode: int) -> bool:
    return mode & 0o170000 == 0o100000


def head_of(path: str, *, whole: bool, header: bool = False) -> int | None:
    """The key of a file, if it has one and is there."""
    try:
        content = Content(path)
    except SourceMissing:
        return None
    try:
        key = content.head(whole=whole, header=header)
        if key is None and whole and content.is_cut_off:
            raise SourceUnreadable(path=path, cause="it ends within its packed data")
        return key
    finally:
        content.close()


class Tracker:
    """Keeps track of the files of one partition.

    Parameters
    ----------
    owned : callable
        Whether the partition has the file with that key.
    held : callable
        Returns a state that is further than a given one, where lines of the file were read and not given out yet.
    whole : bool
        Files are as they will be while they are read: the last line needs no line break.
    header : bool
        They begin with a header, which may be the same in all.
    """

    def __init__(
        self,
        owned: Callable[[int], bool],
        held: Callable[[FileState], FileState | None],
        *,
        whole: bool,
        header: bool = False,
    ) -> None:
        self._owned = owned
        self._held = held
        self._whole = whole
        self._header = header
        self.states: dict[str, FileState] = {}
        """By path: the files that are there."""
        self.gone: list[FileState] = []
        self._foreign: dict[str, Entry] = {}
        """Files that are not this partition's, or have no whole line yet, as they were when they were looked at."""

    def restore(self, states: Iterable[FileState]) -> None:
        """Go on from what was known."""
        kept = list(states)
        self.states = {each.path: each for each in kept if not each.gone}
        self.gone = [each for each in kept if each.gone]
        self._foreign.clear()

    def known(self) -> list[FileState]:
        """Everything that is to be remembered: files of which something was read."""
        return [*self.gone, *(each for each in self.states.values() if each.byte)]

    def look(self, listed: list[Entry]) -> list[tuple[FileState, Entry]]:
        """Match what is there with what is known, and take in new files; return the files of the partition.

        Raises
        ------
        SourceChanged, SourceMissing
            When what was read of a file is not there any more, or what was not read is gone.
        """
        at = {each.path: each for each in listed}
        matched: dict[str, tuple[FileState, Entry]] = {}
        lost = []
        for state in self.states.values():
            entry = at.get(state.path)
            if entry is not None and entry.inode == state.inode:
                matched[entry.path] = state, entry
            else:
                lost.append(state)
        # Of files that begin alike, the one that was read furthest chooses first: the others have more to choose from.
        elsewhere, left = _Elsewhere(listed), []
        for reached, state in sorted(
            ((self._held(each) or each, each) for each in lost), key=lambda pair: -pair[0].byte
        ):
            entry = elsewhere.find(reached, matched)
            if entry is None:
                left.append(state)
            else:
                matched[entry.path] = state, entry
        for state in left:
            if state.path in at and state.path not in matched:
                raise SourceChanged(path=state.path, problem="another file has taken its place")
            if not state.ended:
                raise SourceMissing(path=state.path)
            state.gone = True
            self.gone.append(state)
        del self.gone[:-GONE_MAX]
        for state in self.gone:
            if state.path in at and state.path not in matched:
                self._came_back(state, at[state.path], matched)
        self.gone = [each for each in self.gone if each.gone]
        for path, (state, entry) in matched.items():
            state.path, state.inode = path, entry.inode
        self.states = {path: state for path, (state, _) in matched.items()}
        self._foreign = {path: entry for path, entry in self._foreign.items() if path in at}
        for entry in listed:
            if entry.path not in matched and (new := self._new(entry, at)) is not None:
                self.states[entry.path] = new
                matched[entry.path] = new, entry
        return list(matched.values())

    @staticmethod
    def _came_back(state: FileState, entry: Entry, matched: dict[str, tuple[FileState, Entry]]) -> None:
        if not _has(entry, state):
            raise SourceChanged(path=entry.path, problem="another file has taken its place")
        state.gone = False
        matched[entry.path] = state, entry

    def _new(self, entry: Entry, at: dict[str, Entry]) -> FileState | None:
        if self._foreign.get(entry.path) == entry:
            return None
        key = entry.key if entry.key is not None else self._key(entry.path)
        if key is None or not self._owned(key):
            self._foreign[entry.path] = entry
            return None
        return None if self._is_copy(entry, key, at) else FileState(entry.path, entry.inode, key, header=self._header)

    def _key(self, path: str) -> int | None:
        return head_of(path, whole=self._whole, header=self._header)

    def _is_copy(self, entry: Entry, key: int, at: dict[str, Entry]) -> bool:
        packed = next((each for each in PACKED if entry.path.endswith(each)), None)
        original = at.get(entry.path.removesuffix(packed)) if packed is not None else None
        return original is not None and (original.key or self._key(original.path)) == key


class _Elsewhere:
    """Looks for files that are not where they were."""

    def __init__(self, listed: list[Entry]) -> None:
        self._listed = listed
        self._directories: dict[str, list[Entry]] = {}

    def _near(self, state: FileState) -> list[Entry]:
        directory = os.path.dirname(state.path)  # noqa: PTH120
        if directory not in self._directories:
            listed = {each.path for each in self._listed}
            others = [each for each in _files(directory) if each.path not in listed]
            self._directories[directory] = [*self._listed, *others]
        return self._directories[directory]

    def find(self, state: FileState, matched: dict[str, tuple[FileState, Entry]]) -> Entry | None:
        """Find a file with its bytes: by its inode, which may have been given to another since; else in its place.

        Whatever has the same bytes will do, as long as each file is taken once.
        """
        near = [each for each in self._near(state) if each.path not in matched]
        near.sort(key=lambda each: (each.inode != state.inode, each.path != state.path))
        return next((each for each in near if _has(each, state)), None)


def find(state: FileState) -> Content:
    """Open a file that was read up to some byte, wherever it is now."""
    try:
        content = Content(state.path)
    except SourceMissing:
        pass
    else:
        if content.inode == state.inode or state.follows(content):
            return content
        content.close()
    entry = _Elsewhere([]).find(state, {})
    if entry is None:
        raise SourceMissing(path=state.path)
    return Content(entry.path)


def _has(entry: Entry, state: FileState) -> bool:
    """Whether a file has the bytes that were read of another."""
    try:
        content = Content(entry.path)
    except SourceMissing:
        return False
    try:
        if not content.is_packed and entry.size < state.byte:
            return False
        return state.follows(content)
    finally:
        content.close()
