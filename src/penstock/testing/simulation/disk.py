"""The simulated disk, which outlives every process: writes take time and a crash loses the unfinished ones.

It also holds what the transactional sink of the simulation has prepared and published.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol
from zlib import crc32

import msgspec

from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.control.events import RecordCommit
from penstock.protocol import messages as m
from penstock.testing.simulation.world import Violation, World
from penstock.types import Record, Schema

KEPT_COMMITS = 2

PartKey = tuple[str, int, int]
"""Sink, instance and epoch."""

_encode = msgspec.msgpack.Encoder().encode
_decode_commit = msgspec.msgpack.Decoder(RecordCommit).decode


class Owner(Protocol):
    """A process that writes."""

    name: str
    dead: bool


class Disk:
    """Files that are there whole or not at all."""

    def __init__(self, world: World, write_us_max: int) -> None:
        self.files: dict[str, bytes] = {}
        self.torn: set[str] = set()
        """Temporary files that a crash has left behind."""
        self.committed_epoch = 0
        """Epoch of the newest commit record."""
        self.prepared: dict[str, list[Record]] = {}
        self.published: dict[PartKey, list[Record]] = {}
        self._world = world
        self._write_us_max = write_us_max
        self._free_us: dict[str, int] = {}
        self._pending = 0

    def write(self, owner: Owner, name: str, data: bytes, done: Callable[[], None]) -> None:
        """Write a file; a process's writes are done in their order, unless it dies before."""
        world = self._world
        free_us = max(self._free_us.get(owner.name, 0), world.now_us)
        self._free_us[owner.name] = at_us = free_us + world.between(10, self._write_us_max)

        def finish() -> None:
            if owner.dead:
                self.torn.add(name)
                return
            self.files[name] = data
            done()

        world.at(at_us, f"{owner.name} wrote {name}", finish)

    def write_commit(self, owner: Owner, record: RecordCommit, done: Callable[[], None]) -> None:
        """Write a commit record, the last write of an epoch."""

        def written() -> None:
            self._check_commit(record)
            self.committed_epoch = record.epoch
            done()
            self._clean(record)

        self.write(owner, f"commit-{record.epoch:010d}", _encode(record), written)

    def _check_commit(self, record: RecordCommit) -> None:
        if record.epoch <= self.committed_epoch:
            raise Violation(f"epoch {record.epoch} is recorded after epoch {self.committed_epoch}")
        for stored in record.snapshots:
            self.read(stored)
            if stored.epoch > record.epoch:
                raise Violation(f"the commit of epoch {record.epoch} names a snapshot of epoch {stored.epoch}")

    def _clean(self, record: RecordCommit) -> None:
        commits = sorted(name for name in self.files if name.startswith("commit-"))
        for name in commits[:-KEPT_COMMITS]:
            del self.files[name]
        needed = {stored.name for stored in record.snapshots}
        for name in [n for n in self.files if n.startswith("u") and n not in needed]:
            if int(name.split("-")[2][1:]) < record.epoch - KEPT_COMMITS:
                del self.files[name]

    def read(self, stored: m.Stored) -> bytes:
        """Read a snapshot that somebody counts on."""
        data = self.files.get(stored.name)
        if data is None or crc32(data) != stored.crc:
            raise Violation(f"snapshot {stored.name} is counted on and {'missing' if data is None else 'damaged'}")
        return data

    def last_commit(self) -> RecordCommit | None:
        """What a job that is started again goes on from."""
        commits = sorted(name for name in self.files if name.startswith("commit-"))
        return _decode_commit(self.files[commits[-1]]) if commits else None

    # --- the transactional sink ---------------------------------------------------------------------------------------

    def name(self, key: PartKey) -> str:
        """A name that nobody else uses, for a part that is prepared."""
        self._pending += 1
        return f"{key[0]}-{key[1]}-{key[2]}-{self._pending}"

    def publish(self, key: PartKey, name: str) -> None:
        """Make a part visible; again is the same as once."""
        rows = self.prepared[name]
        if not rows:
            return
        if key[2] > self.committed_epoch:
            raise Violation(f"{key} is published, but only epoch {self.committed_epoch} is committed")
        if self.published.setdefault(key, rows) != rows:
            raise Violation(f"{key} is published twice, with different records")


class Ledger(Sink):
    """A sink like files: prepared under a name of its own, published by epoch, and there for ever."""

    kind = "ledger"

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        del schema
        return _LedgerWriter(self._disk, context.operation, context.instance)


class _LedgerWriter(SinkWriter):
    def __init__(self, disk: Disk, sink: str, instance: int) -> None:
        self._disk = disk
        self._sink = sink
        self._instance = instance
        self._open: list[Record] = []
        self._prepared: dict[int, str] = {}
        self._uploads: list[Callable[[], None]] = []

    def write(self, rows: list[Record]) -> None:
        self._open += rows

    def prepare(self, epoch: int) -> None:
        name = self._prepared[epoch] = self._disk.name((self._sink, self._instance, epoch))
        self._uploads.append(partial(self._disk.prepared.__setitem__, name, self._open))
        self._open = []

    def uploads(self) -> list[Callable[[], None]]:
        taken, self._uploads = self._uploads, []
        return taken

    def commit(self, epoch: int) -> list[Record] | None:
        for prepared in sorted(each for each in self._prepared if each <= epoch):
            self._disk.publish((self._sink, self._instance, prepared), self._prepared.pop(prepared))
        return None

    def snapshot(self, epoch: int) -> bytes | None:
        # Earlier ones too: the word that they are committed may come only after this.
        return _encode({each: name for each, name in self._prepared.items() if each <= epoch})

    def restore(self, epoch: int, snapshot: bytes | None) -> None:
        if snapshot is not None:
            self._prepared = msgspec.msgpack.decode(snapshot, type=dict[int, str])
