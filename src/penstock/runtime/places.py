"""Where checkpoints are kept: a directory, or an object store through fsspec. Files appear whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from penstock.checks import local_path
from penstock.connectors.store import Store, is_url

_TOKEN = "-by-"
"""Between the name of what is claimed and who claims it, where the store cannot decide."""


class Place(ABC):
    """A flat set of named files below a root."""

    @abstractmethod
    def create(self) -> None:
        """Make the root."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a file so that it is there whole or not at all, also after a crash."""

    @abstractmethod
    def claim(self, name: str, data: bytes) -> bool:
        """Write a file that must be new; False if it is there already, which of two writers one is told."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Read a file; OSError if it is not there."""

    @abstractmethod
    def names(self) -> list[str]:
        """Names of all files, sorted; unfinished ones are not among them."""

    @abstractmethod
    def remove(self, names: Sequence[str]) -> None:
        """Remove files, as far as they are there."""

    def wait_for(self, outage_s: float) -> None:
        """Wait for so long where the place does not answer."""

    @abstractmethod
    def path(self, name: str) -> str:
        """A file's name as users know it."""


class Directory(Place):
    """Files in a directory; ``durable`` ones survive the machine, others the process."""

    def __init__(self, root: Path, *, durable: bool) -> None:
        self._root = root
        self._durable = durable

    def create(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, data: bytes) -> None:
        temporary = self._root / f"{name}.tmp"
        with temporary.open("wb") as file:
            file.write(data)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(self._root / name)
        self._sync()

    def claim(self, name: str, data: bytes) -> bool:
        try:
            with (self._root / name).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            return False
        self._sync()
        return True

    def _sync(self) -> None:
        if self._durable:
            descriptor = os.open(self._root, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def names(self) -> list[str]:
        if not self._root.is_dir():
            return []
        return sorted(path.name for path in self._root.iterdir() if path.suffix != ".tmp")

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            (self._root / name).unlink(missing_ok=True)

    def path(self, name: str) -> str:
        return str(self._root / name)


class ObjectStore(Place):
    """Objects under a prefix of any fsspec file system; a put is atomic in an object store."""

    def __init__(self, url: str) -> None:
        self._store = Store(url, "checkpoint")

    def create(self) -> None:
        pass  # an object's name is all that there is of a directory

    def wait_for(self, outage_s: float) -> None:
        self._store.outage_s = outage_s

    def write(self, name: str, data: bytes) -> None:
        self._store.put(name, data)

    def claim(self, name: str, data: bytes) -> bool:
        if self._store.is_exclusive:
            try:
                self._store.create(name, data)
            except FileExistsError:
                return False
            return True
        # Two that look after they have written cannot both see themselves alone; if each sees both, neither goes on.
        own = f"{name}{_TOKEN}{os.urandom(8).hex()}"
        if any(each.partition(_TOKEN)[0] == name for each in self._store.names()):
            return False
        self._store.put(own, data)
        return [each for each in self._store.names() if each.partition(_TOKEN)[0] == name] == [own]

    def read(self, name: str) -> bytes:
        return self._store.read(name)

    def names(self) -> list[str]:
        return self._store.names()

    def remove(self, names: Sequence[str]) -> None:
        self._store.remove(names)

    def path(self, name: str) -> str:
        return self._store.path(name)


def open_place(root: str, name: str, *, durable: bool) -> Place:
    """Open one of a checkpoint's parts, below a directory or a URL."""
    if root.startswith("file://"):
        root = local_path("checkpoint", root)  # where files are forced to disk and renamed, as in any directory
    if is_url(root):
        return ObjectStore(f"{root.rstrip('/')}/{name}")
    return Directory(Path(root) / name, durable=durable)


_HELD = (errno.EWOULDBLOCK, errno.EACCES)


def lock_place(root: str, holder: str) -> IO[str] | None:
    """Lock a directory for one process, until it closes the file or ends, however it ends.

    Returns
    -------
    file or None
        None where there are no locks: in an object store, or on a network file system without them.

    Raises
    ------
    BlockingIOError
        When another process has it; its text is what that one gave as ``holder``.
    """
    if is_url(root):
        return None
    Path(root).mkdir(parents=True, exist_ok=True)
    file = (Path(root) / "lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        other = file.read().strip()
        file.close()
        if error.errno in _HELD:
            raise BlockingIOError(other) from None
        return None
    file.truncate(0)
    file.write(f"{holder}\n")
    file.flush()
    return file
