"""The user's modules and files on the machines of a cluster; `Job` has them sent, the command line imports them.

What is sent, and where it is found there:

===================================  ==================================================================================
what                                 where a worker finds it
===================================  ==================================================================================
modules and packages beside the      unpacked, on Python's path: packages may open the data files that lie in them
program, on a cluster
``py_files``                         likewise, of all of them one directory
``files``                            where ``pyspark.SparkFiles.get(name)`` says
``environment``                      unpacked as ``environment`` where the executor works; its Python runs the workers
===================================  ==================================================================================

Spark fetches each once for every executor, also for those that come later. On this machine processes find what lies
beside the program by themselves (`PYTHONPATH`).
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InvalidOption, LimitExceeded, SparkFailed
from penstock.pipeline.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKED_BYTES_MAX = 50 << 20
_SKIPPED = ("__pycache__", "site-packages")
_ARCHIVES = (".zip", ".whl", ".egg")

_shipped: dict[tuple[int, tuple[str, ...]], tempfile.TemporaryDirectory[str]] = {}
"""By session and what was packed. What a session has, it has for all of its jobs; it stays until the process ends,
because executors that come later fetch it from here."""
_gathered: dict[tuple[str, ...], tempfile.TemporaryDirectory[str]] = {}
"""By ``py_files``: what they hold, unpacked."""


def ship(session: SparkSession, options: Options) -> None:
    """Send what the job needs to the executors, once for each session."""
    context = session.sparkContext
    try:
        if options.py_files:
            _send(session, gathered(options.py_files), "py_files", options.py_files)
        for path in options.files:
            context.addFile(str(Path(path).resolve()))
    except Exception as error:
        if "already registered" in str(error):
            allowed = "files of other names: this Spark session has others of the same name"
            raise InvalidOption(option="files", given=options.files, allowed=allowed) from None
        raise SparkFailed(f"Spark did not take the job's files: {error}.") from error
    directory = program_directory()
    # Processes of this machine find what lies beside the program by themselves.
    if directory is not None and not context.master.startswith("local"):
        _send(session, directory, "modules beside the program", (str(directory),))


def _send(session: SparkSession, directory: Path, what: str, key: tuple[str, ...]) -> None:
    context = session.sparkContext
    if (id(context), key) in _shipped:
        return
    scratch = tempfile.TemporaryDirectory(prefix="penstock-program-")
    name = Path(scratch.name).name
    packed = Path(scratch.name) / f"{name}.zip"
    if pack(directory, packed, what):
        # An archive is unpacked by each executor; as an include, what was unpacked is on the path of Spark's processes.
        context.addArchive(f"{packed}#{name}")
        context._python_includes.append(name)
    _shipped[id(context), key] = scratch


def stay_findable() -> None:
    """Keep what was sent findable when a worker changes to the user's directory: executors name it relatively."""
    from pyspark import SparkFiles

    sys.path[:] = [os.path.abspath(each) if each.startswith(".") else each for each in sys.path]  # noqa: PTH100
    if SparkFiles._is_running_on_worker:
        SparkFiles._root_directory = os.path.abspath(SparkFiles._root_directory or os.curdir)  # noqa: PTH100


# --- what users name --------------------------------------------------------------------------------------------------


def check_paths(*, py_files: tuple[str, ...] = (), files: tuple[str, ...] = ()) -> None:
    """Refuse ``py_files`` and ``files`` that cannot be sent, or not be imported there."""
    for option, given in (("py_files", py_files), ("files", files)):
        names: dict[str, str] = {}
        for each in given:
            if "://" in each or not Path(each).exists():
                allowed = "files of this machine" if "://" in each else "files that are there"
                raise InvalidOption(option=option, given=each, allowed=allowed)
            if option == "files" and not Path(each).is_file():
                raise InvalidOption(option=option, given=each, allowed="files; pack a directory into an archive")
            if names.setdefault(Path(each).name, each) != each:
                raise InvalidOption(option=option, given=each, allowed=f"one file of the name '{Path(each).name}'")
    for each in py_files:
        _check_importable(Path(each))


def _check_importable(path: Path) -> None:
    is_package = path.is_dir() and (path / "__init__.py").is_file()
    if not is_package and (path.is_dir() or path.suffix not in (".py", *_ARCHIVES)):
        allowed = "modules (.py), packages (a directory with __init__.py), or archives of them (.zip, .whl, .egg)"
        raise InvalidOption(option="py_files", given=str(path), allowed=allowed)
    if path.suffix in _ARCHIVES and path.is_file() and not zipfile.is_zipfile(path):
        raise InvalidOption(option="py_files", given=str(path), allowed="archives that can be opened")


def gathered(py_files: tuple[str, ...]) -> Path:
    """A directory with all that ``py_files`` hold, as it is imported from; made once.

    Raises
    ------
    InvalidOption
        If two of them have a file of the same name.
    LimitExceeded
        If an archive is larger than what is sent.
    """
    if py_files not in _gathered:
        scratch = tempfile.TemporaryDirectory(prefix="penstock-py-files-")
        into = Path(scratch.name)
        for each in map(Path, py_files):
            try:
                _gather(each, into)
            except FileExistsError as error:
                allowed = f"modules of different names: '{error}' is in two of them"
                raise InvalidOption(option="py_files", given=str(each), allowed=allowed) from None
        _gathered[py_files] = scratch
    return Path(_gathered[py_files].name)


def _gather(path: Path, into: Path) -> None:
    if path.is_dir():
        if (into / path.name).exists():
            raise FileExistsError(path.name)
        shutil.copytree(path, into / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        return
    if path.suffix == ".py":
        if (into / path.name).exists():
            raise FileExistsError(path.name)
        shutil.copy(path, into)
        return
    with zipfile.ZipFile(path) as packed:
        files = [each for each in packed.infolist() if not each.is_dir()]
        _check_size(sum(each.file_size for each in files), "py_files", path)
        for each in files:
            if (into / each.filename).exists():
                raise FileExistsError(each.filename)
        packed.extractall(into)


def make_importable(py_files: tuple[str, ...]) -> None:
    """Let this process import what ``py_files`` hold, as the workers can; before the program is read."""
    if py_files:
        directory = str(gathered(py_files))
        sys.path.insert(0, directory)
        # A Spark that is embedded here starts its processes with this.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [directory, os.environ.get("PYTHONPATH")]))
        importlib.invalidate_caches()


# --- what lies beside the program -------------------------------------------------------------------------------------


def program_directory() -> Path | None:
    """The directory of the program, if it imports from there; none for a console, and for an installed command."""
    if not sys.argv or not sys.argv[0]:
        return None
    first = Path(sys.path[0] or os.curdir).resolve()
    beside = Path(sys.argv[0]).resolve().parent
    found = first if first != beside and any(first.glob("*.py")) else beside
    is_installed = found in (Path(sys.executable).parent, Path(sys.executable).resolve().parent)
    return None if is_installed or any(each in found.parts for each in _SKIPPED) else found


def pack(directory: Path, to: Path, what: str) -> int:
    """Pack the modules and packages of a directory; return how many files that is.

    Raises
    ------
    LimitExceeded
        If they are so large that the directory can hardly be that of a program.
    """
    files, size_bytes = list(modules(directory)), 0
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in files:
            size_bytes += path.stat().st_size
            _check_size(size_bytes, what, directory)
            packed.write(path, path.relative_to(directory))
    return len(files)


def _check_size(size_bytes: int, what: str, place: Path) -> None:
    if size_bytes > PACKED_BYTES_MAX:
        hint = "Install what is large, and send it with the environment: penstock pack."
        raise LimitExceeded(what=f"bytes of {what}, in '{place}'", limit=PACKED_BYTES_MAX, got=size_bytes, hint=hint)


def modules(directory: Path) -> Iterator[Path]:
    """The modules of a directory, and all that its packages hold: they may need data."""
    yield from sorted([*directory.glob("*.py"), *directory.glob("*.so")])
    for package in sorted(directory.iterdir()):
        with suppress(OSError):
            if not package.name.startswith(".") and (package / "__init__.py").is_file():
                held = (path for path in package.rglob("*") if "__pycache__" not in path.parts and path.is_file())
                yield from sorted(held)
