"""An object store behind an fsspec URL: whole objects, no rename, no lock; sinks and checkpoints keep theirs in one.

Calls are slow and may fail for a while, so they are made off the loops of workers and driver, side by side, and again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from time import monotonic, sleep, time
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from penstock.errors import InvalidOption

T = TypeVar("T")

OUTAGE_S = 600.0
"""How long a store may be away before a job that needs it fails."""
START_OUTAGE_S = 10.0
"""The same before the job runs: somebody waits for it, or has mistyped the address."""
_AGAIN_S_FIRST = 0.2
_AGAIN_S_MAX = 2.0
_CALLS_MAX = 16
"""Calls that are made side by side where a store cannot take several objects in one."""
_ONE_PUT_BYTES = 16 << 20
"""Larger objects are uploaded in parts."""

_FINAL = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotImplementedError,
    ImportError,
    TypeError,
    ValueError,
)
"""Answers that will not change by asking again."""


def is_url(path: str) -> bool:
    """Whether a path names an object store, and not a file of this machine."""
    return "://" in path and not path.startswith("file://")


def shown(url: str) -> str:
    """The URL without what is nobody's business: user, password, query."""
    return re.sub(r"://[^/@]*@", "://", url).partition("?")[0]


class Store:
    """Objects under a URL, by the names below it.

    Parameters
    ----------
    url : str
        Any URL for which fsspec finds a file system. Its settings (endpoint, keys) are fsspec's own.
    option : str
        What the user has given it as, for errors.
    outage_s : float
        How long to ask again while the store does not answer; may be set while somebody waits.
    """

    def __init__(self, url: str, option: str, outage_s: float = OUTAGE_S) -> None:
        import fsspec

        if not urlsplit(url).path.strip("/") and not urlsplit(url).netloc:
            raise InvalidOption(option=option, given=shown(url), allowed="a URL with a path")
        try:
            self._files: Any
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            allowed = f"a directory or a URL that fsspec can open ({error})"
            raise InvalidOption(option=option, given=shown(url), allowed=allowed) from None
        self._root = str(self._root).rstrip("/")
        self.outage_s = outage_s
        self.url = shown(url).rstrip("/")

    def path(self, name: str) -> str:
        """An object's name as users know it."""
        return f"{self.url}/{name}"

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    @property
    def is_exclusive(self) -> bool:
        """Whether `create` is decided by the store itself: else another may come in between."""
        from fsspec import AbstractFileSystem

        made: bool = type(self._files).pipe_file is not AbstractFileSystem.pipe_file
        return made

    def put(self, name: str, data: bytes) -> None:
        """Write an object, which appears whole."""
        self._insist(lambda: self._files.pipe_file(self._at(name), data))

    def create(self, name: str, data: bytes) -> None:
        """Write an object that must be new; FileExistsError where there is one."""
        self._files.pipe_file(self._at(name), data, mode="create")

    def upload(self, name: str, file: IO[bytes]) -> None:
        """Write an object from a local file."""

        def send() -> None:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= _ONE_PUT_BYTES:
                self._files.pipe_file(self._at(name), file.read())
                return
            with self._files.open(self._at(name), "wb") as target:
                while piece := file.read(_ONE_PUT_BYTES):
                    target.write(piece)

        self._insist(send)

    def read(self, name: str) -> bytes:
        """Read an object; FileNotFoundError where there is none."""
        data: bytes = self._insist(lambda: self._files.cat_file(self._at(name)))
        return data

    def exists(self, name: str) -> bool:
        """Whether there is such an object at this moment."""

        def ask() -> bool:
            self._files.invalidate_cache()
            found: bool = self._files.exists(self._at(name))
            return found

        return self._insist(ask)

    def copy(self, name: str, to: str) -> None:
        """Make one object of another, inside the store where it can; FileNotFoundError where it is missing."""

        def make() -> None:
            try:
                self._files.cp_file(self._at(name), self._at(to))
            except NotImplementedError:
                self._files.pipe_file(self._at(to), self._files.cat_file(self._at(name)))

        self._insist(make)

    def names(self, below: str = "") -> list[str]:
        """Names of the objects right below the URL, or below a part of it, sorted."""
        root = self._at(below).rstrip("/")

        def find() -> list[str]:
            self._files.invalidate_cache()
            try:
                found = self._files.ls(root, detail=True)
            except FileNotFoundError:
                return []
            return sorted(each["name"].rsplit("/", 1)[-1] for each in found if each["type"] == "file")

        return [name for name in self._insist(find) if name]

    def older(self, names: Sequence[str], age_s: float) -> list[str]:
        """Those of the objects that were written so long ago, by the store's own dates."""

        def written_s(name: str) -> float:
            try:
                return float(self._files.modified(self._at(name)).timestamp())
            except (NotImplementedError, FileNotFoundError):
                return inf

        return [name for name, at_s in zip(names, self._each(written_s, names), strict=True) if at_s < time() - age_s]

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects, as far as they are there."""
        self._each(self._remove, names)

    def _remove(self, name: str) -> None:
        try:
            self._insist(lambda: self._files.rm_file(self._at(name)))
        except FileNotFoundError:
            pass

    def _each(self, what: Callable[[str], T], names: Sequence[str]) -> list[T]:
        if len(names) < 2:
            return [what(name) for name in names]
        with ThreadPoolExecutor(min(len(names), _CALLS_MAX)) as calls:
            return list(calls.map(what, names))

    def _insist(self, call: Callable[[], T]) -> T:
        """Call, and again for as long as the store may be away."""
        wait_s, began = _AGAIN_S_FIRST, monotonic()
        while True:
            try:
                return call()
            except _FINAL:
                raise
            except Exception as error:
                if monotonic() + wait_s > began + self.outage_s:
                    raise OSError(f"'{self.url}' does not answer: {type(error).__name__}: {error}") from error
                sleep(wait_s)
                wait_s = min(2 * wait_s, _AGAIN_S_MAX)
