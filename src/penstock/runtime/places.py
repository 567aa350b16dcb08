"""Where checkpoints are kept: a directory, or an object store through fsspec. Files appear whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, Any

from penstock.checks import local_path
from penstock.errors import InvalidOption


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
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

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

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    def path(self, name: str) -> str:
        return str(self._root / name)


class ObjectStore(Place):
    """Objects under a prefix of any fsspec file system; a put is atomic in an object store."""

    def __init__(self, url: str) -> None:
        import fsspec

        try:
            self._files: Any
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            allowed = f"a directory or a URL that fsspec can open ({error})"
            raise InvalidOption(option="checkpoint", given=url, allowed=allowed) from None
        self._url = url

    def create(self) -> None:
        self._files.makedirs(self._root, exist_ok=True)

    def write(self, name: str, data: bytes) -> None:
        self._files.pipe_file(f"{self._root}/{name}", data)

    def claim(self, name: str, data: bytes) -> bool:
        try:
            self._files.pipe_file(f"{self._root}/{name}", data, mode="create")
        except FileExistsError:
            return False
        return True

    def read(self, name: str) -> bytes:
        data: bytes = self._files.cat_file(f"{self._root}/{name}")
        return data

    def names(self) -> list[str]:
        self._files.invalidate_cache()
        if not self._files.exists(self._root):
            return []
        return sorted(each.rsplit("/", 1)[-1] for each in self._files.ls(self._root, detail=False))

    def remove(self, name: str) -> None:
        if self._files.exists(f"{self._root}/{name}"):
            self._files.rm_file(f"{self._root}/{name}")

    def path(self, name: str) -> str:
        return f"{self._url}/{name}"


def open_place(root: str, name: str, *, durable: bool) -> Place:
    """Open one of a checkpoint's parts, below a directory or a URL."""
    if root.startswith("file://"):
        root = local_path("checkpoint", root)  # where files are forced to disk and renamed, as in any directory
    if "://" in root:
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
    if "://" in root:
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
