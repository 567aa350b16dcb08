"""Whether a worker sees the driver's directories.

In the checkpoint's the driver leaves a file, and the worker looks for it. The driver's working directory, which
relative paths begin in, is known by its inode: nothing is written there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from penstock.connectors.store import is_url
from penstock.errors import CheckpointNotShared, PathNotShared
from penstock.pipeline.plan import Plan


def leave_sign(checkpoint: str) -> str:
    """Leave a sign in a checkpoint directory and return its path; empty for a URL, which is the same everywhere."""
    if is_url(checkpoint):
        return ""
    directory = Path(checkpoint)
    directory.mkdir(parents=True, exist_ok=True)
    sign = directory / f"sign-{uuid4().hex}"
    sign.touch()
    return str(sign)


def look_for_sign(sign: str, *, needed: bool) -> bool:
    """Say whether the driver's sign is seen; raise CheckpointNotShared where it is not and must be."""
    seen = not sign or Path(sign).exists()
    if needed and not seen:
        raise CheckpointNotShared(directory=str(Path(sign).parent), machine=socket.gethostname())
    return seen


def remove_sign(sign: str) -> None:
    """Take the sign away."""
    if sign:
        Path(sign).unlink(missing_ok=True)


Directory = tuple[str, int]
"""A path, and the inode of what is there; an empty path: it need not be looked for."""


def own_directory() -> Directory:
    """Where this process is."""
    directory = os.getcwd()  # noqa: PTH109 (as text: it travels)
    return directory, Path(directory).stat().st_ino


@contextmanager
def inside(directory: Directory, plan: Plan) -> Iterator[None]:
    """Work in the driver's directory, so that relative paths mean what they mean there, and leave it afterwards.

    Where it is not seen, a source or a sink with a relative path is refused: it would read and write elsewhere.
    """
    path, inode = directory
    if not path:
        yield
        return
    before = os.getcwd()  # noqa: PTH109
    try:
        seen = Path(path).stat().st_ino == inode
    except OSError:
        seen = False
    if not seen:
        for operation, place in _relative(plan):
            raise PathNotShared(path=place, directory=path, machine=socket.gethostname(), operation=operation)
        yield
        return
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def _relative(plan: Plan) -> Iterator[tuple[str, str]]:
    """Sources and sinks with a path that is relative, and the path."""
    for unit in plan.units:
        for name, end in [(unit.name, unit.source), *((op.name, op.sink) for op in unit.ops)]:
            place = end.place if end is not None else None
            if place is not None and not is_url(str(place)) and not Path(place).is_absolute():
                yield name, str(place)
