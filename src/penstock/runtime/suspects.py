"""The note of careful mode on disk: a mapped file that outlives the process, and the losses counted from it."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from zlib import crc32

import msgspec

from penstock.engine.guard import QUARANTINE_LOSSES, Guard, Suspect

_NOTE_BYTES = 4096


class _Counted(msgspec.Struct):
    suspect: Suspect
    losses: int


def open_guard(checkpoint: str, worker: int) -> Guard:
    """Judge what the lost process of this worker was at, and open a new note."""
    # A mapped file needs a file system: beside an object store, this machine's own.
    beside = Path(tempfile.gettempdir()) / f"penstock-{crc32(checkpoint.encode()):08x}"
    directory = (beside if "://" in checkpoint else Path(checkpoint)) / "suspects"
    directory.mkdir(parents=True, exist_ok=True)
    note = directory / f"worker-{worker}.note"
    _judge(directory, note)
    note.write_bytes(bytes(_NOTE_BYTES))
    with note.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), _NOTE_BYTES)

    def write(suspect: Suspect | None) -> None:
        # A killed process leaves the pages of a mapped file behind; the length is set last and cleared first.
        mapped[0:2] = b"\0\0"
        if suspect is not None:
            packed = msgspec.msgpack.encode(suspect)[: _NOTE_BYTES - 2]
            mapped[2 : 2 + len(packed)] = packed
            mapped[0:2] = len(packed).to_bytes(2, "little")

    return Guard(quarantined(directory), write)


def _judge(directory: Path, note: Path) -> None:
    if not note.exists():
        return
    data = note.read_bytes()
    size = int.from_bytes(data[:2], "little")
    if not size:
        return
    suspect = msgspec.msgpack.decode(data[2 : 2 + size], type=Suspect)
    path = directory / f"{suspect.fingerprint:08x}.json"
    losses = 1
    if path.exists():
        losses += msgspec.json.decode(path.read_bytes(), type=_Counted).losses
    path.write_bytes(msgspec.json.encode(_Counted(suspect, losses)))


def quarantined(directory: Path) -> frozenset[Suspect]:
    """Records that have cost the process often enough."""
    counted = [msgspec.json.decode(path.read_bytes(), type=_Counted) for path in directory.glob("*.json")]
    return frozenset(each.suspect for each in counted if each.losses >= QUARANTINE_LOSSES)
