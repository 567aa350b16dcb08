"""The user's modules on the machines of a cluster: what lies beside the program is packed and sent through Spark.

On this machine processes find it by themselves (`PYTHONPATH`); executors elsewhere have other directories.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import LimitExceeded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKED_BYTES_MAX = 50 << 20
_SKIPPED = ("__pycache__", "site-packages")

_shipped: dict[tuple[int, str], tempfile.TemporaryDirectory[str]] = {}
"""By session and directory of the program: what was packed. What a session has, it has for all of its jobs."""


def ship_program(session: SparkSession) -> None:
    """Send the modules beside the program to the executors, once for each session, unless they are all here."""
    context = session.sparkContext
    directory = program_directory()
    if context.master.startswith("local") or directory is None or (id(context), str(directory)) in _shipped:
        return
    # It stays until the process ends: executors that come later fetch it from here.
    scratch = tempfile.TemporaryDirectory(prefix="penstock-program-")
    packed = Path(scratch.name) / "program.zip"
    if pack_modules(directory, packed):
        context.addPyFile(str(packed))
    _shipped[id(context), str(directory)] = scratch


def program_directory() -> Path | None:
    """The directory of the program, if it imports from there; none for a console, and for an installed command."""
    if not sys.argv or not sys.argv[0]:
        return None
    first = Path(sys.path[0] or os.curdir).resolve()
    beside = Path(sys.argv[0]).resolve().parent
    found = first if first != beside and any(first.glob("*.py")) else beside
    is_installed = found in (Path(sys.executable).parent, Path(sys.executable).resolve().parent)
    return None if is_installed or any(each in found.parts for each in _SKIPPED) else found


def pack_modules(directory: Path, to: Path) -> int:
    """Pack the modules and packages of a directory; return how many files that is.

    Raises
    ------
    LimitExceeded
        If they are so large that the directory can hardly be that of a program.
    """
    files, size_bytes = list(_modules(directory)), 0
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in files:
            size_bytes += path.stat().st_size
            if size_bytes > PACKED_BYTES_MAX:
                raise LimitExceeded(
                    what=f"bytes of modules beside the program, in '{directory}'",
                    limit=PACKED_BYTES_MAX,
                    got=size_bytes,
                )
            packed.write(path, path.relative_to(directory))
    return len(files)


def _modules(directory: Path) -> Iterator[Path]:
    yield from sorted(directory.glob("*.py"))
    for package in sorted(directory.iterdir()):
        if (package / "__init__.py").is_file():
            yield from sorted(path for path in package.rglob("*.py") if "__pycache__" not in path.parts)
