"""The note of careful mode on disk: a mapped file that outlives the process, and the losses counted from it."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from zlib import crc32

import msgspec

from penstock.connectors.store import is_url
from penstock.engine.guard import QUARANTINE_LOSSES, Guard, Suspect

_NOTE_BYTES = 4096
_TOKEN_BYTES = 8
_BEGIN = _TOKEN_BYTES + 2
"""Where the suspect stands in a note: behind the process's token and the suspect's length."""


class _Counted(msgspec.Struct):
    suspect: Suspect
    losses: int
    token: str
    """Of the note that was counted last: whoever is lost while it counts must not count the same loss again."""


def open_guard(checkpoint: str, worker: int) -> Guard:
    """Judge what the lost process of this worker was at, and open a new note."""
    # A mapped file needs a file system: beside an object store, this machine's own.
    beside = Path(tempfile.gettempdir()) / f"penstock-{crc32(checkpoint.encode()):08x}"
    directory = (beside if is_url(checkpoint) else Path(checkpoint)) / "suspects"
    directory.mkdir(parents=True, exist_ok=True)
    note = directory / f"worker-{worker}.note"
    _judge(directory, note)
    note.write_bytes(os.urandom(_TOKEN_BYTES) + bytes(_NOTE_BYTES - _TOKEN_BYTES))
    with note.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), _NOTE_BYTES)

    def write(suspect: Suspect | None) -> None:
        # A killed process leaves the pages of a mapped file behind; the length is set last and cleared first.
        mapped[_TOKEN_BYTES:_BEGIN] = b"\0\0"
        if suspect is not None:
            packed = msgspec.msgpack.encode(suspect)
            mapped[_BEGIN : _BEGIN + len(packed)] = packed
            mapped[_TOKEN_BYTES:_BEGIN] = len(packed).to_bytes(2, "little")

    return Guard(quarantined(directory), write)


def _judge(directory: Path, note: Path) -> None:
    if not note.exists():
        return
    data = note.read_bytes()
    size = int.from_bytes(data[_TOKEN_BYTES:_BEGIN], "little")
    if not size:
        return
    token = data[:_TOKEN_BYTES].hex()
    suspect = msgspec.msgpack.decode(data[_BEGIN : _BEGIN + size], type=Suspect)
    # A record that went through several operations unchanged is a suspect of its own in front of each.
    path = directory / f"{suspect.fingerprint:016x}-{crc32(suspect.operation.encode()):08x}.json"
    counted = _Counted(suspect, 0, "")
    if path.exists():
        counted = msgspec.json.decode(path.read_bytes(), type=_Counted)
    if counted.token != token:
        _write(path, msgspec.json.encode(_Counted(suspect, counted.losses + 1, token)))


def _write(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or as it was, whatever is lost meanwhile."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def quarantined(directory: Path) -> dict[Suspect, int]:
    """Records that have cost the process often enough, and how often."""
    counted = [msgspec.json.decode(path.read_bytes(), type=_Counted) for path in directory.glob("*.json")]
    return {each.suspect: each.losses for each in counted if each.losses >= QUARANTINE_LOSSES}
