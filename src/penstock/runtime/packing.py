"""An environment that travels: this Python with its packages in one archive, which executors unpack and run.

`penstock pack` writes it, and ``environment=`` names it. The archive has the layout of a Python that finds itself by
where it lies: ``bin/python``, its standard library and ``site-packages``. Nothing in it refers to this machine, so an
executor needs no Python of its own; it needs the same operating system and processor, with their C libraries.

Left out is what no worker reads: Spark's jars, which executors have, compiled files, tests of large packages.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InvalidOption, SessionRefused, SparkFailed
from penstock.pipeline.options import Options
from penstock.runtime.shipping import check_paths, modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "environment"
PYTHON = f"./{NAME}/bin/python"
"""How an executor starts it, from where it works."""
MANIFEST = "penstock-environment.json"
SUFFIXES = (".tar.gz", ".tgz")
"""Spark unpacks others too, and forgets that a file can be executed."""
COMPRESSION = 1
"""Others take several times as long, and save little."""
_SKIPPED = {"__pycache__", "site-packages", "dist-packages", "test", "idlelib", "lib2to3", "turtledemo", "ensurepip"}
"""Of the standard library."""
_LEFT_OUT = ("pyspark/jars", "pyspark/examples", "pyspark/tests", "pandas/tests", "pyarrow/tests", "pyarrow/include")
_LAUNCHER = """#!/bin/sh
# Starts the Python beside it, wherever the two are.
here=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH="$here/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "$here/bin/{binary}" "$@"
"""
_SITE = """# Some builds of Python look for packages elsewhere.
import site, sys
site.addsitedir(sys.prefix + "/{site}")
"""
Entry = tuple[str, Path | bytes]
"""A name in the archive, and what it holds."""


# --- what a job does with one -----------------------------------------------------------------------------------------


def check_sent(options: Options) -> None:
    """Refuse files that cannot be sent, and an environment that workers could not run in; before Spark starts."""
    check_paths(py_files=options.py_files, files=options.files)
    path = options.environment
    if not path:
        return
    if options.master.startswith("local"):
        raise InvalidOption(option="environment", given=path, allowed="on a cluster only: give a master")
    if not Path(path).is_file() or not path.endswith(SUFFIXES):
        allowed = f"an archive ({', '.join(SUFFIXES)}) that is there; make one with penstock pack"
        raise InvalidOption(option="environment", given=path, allowed=allowed)
    try:
        with tarfile.open(path) as packed:
            first = packed.next()
            held = packed.extractfile(first) if first is not None and first.name == MANIFEST else None
            found = json.loads(held.read()) if held is not None else None  # none: made by others, and not known
    except (tarfile.TarError, OSError, ValueError):
        allowed = "an archive that can be read; make one with penstock pack"
        raise InvalidOption(option="environment", given=path, allowed=allowed) from None
    for what, wanted in _facts().items():
        if found is not None and found.get(what) != wanted:
            allowed = f"with {what} {wanted}, which is the driver's: it has {found.get(what)}; pack it again"
            raise InvalidOption(option="environment", given=path, allowed=allowed)


def environment_settings(options: Options) -> dict[str, str]:
    """What Spark is told, so that executors unpack the environment."""
    return {"spark.archives": f"{Path(options.environment).resolve()}#{NAME}"} if options.environment else {}


def check_unpacked(session: SparkSession, options: Options) -> None:
    """Refuse a session that was started without the job's environment: what its executors run is settled."""
    for name, wanted in environment_settings(options).items():
        if wanted not in (session.sparkContext.getConf().get(name) or "").split(","):
            problem = f"its workers run another Python: start it with {name}={wanted} and PYSPARK_PYTHON={PYTHON}"
            raise SessionRefused([problem, "or leave environment= away"])


@contextmanager
def python_of(settings: Mapping[str, str]) -> Iterator[None]:
    """Have a Spark that starts inside run the environment's Python on its executors, and this one here."""
    if "spark.archives" not in settings:
        yield
        return
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict(zip(names, (PYTHON, sys.executable), strict=True)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _facts() -> dict[str, str]:
    """What must be the same at both ends."""
    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "penstock": version_of("penstock"),
        "pyspark": version_of("pyspark"),
    }


# --- making one -------------------------------------------------------------------------------------------------------


def pack_environment(
    to: Path, *, only: Sequence[str] = (), requirements: Path | None = None, level: int = COMPRESSION
) -> int:
    """Write the archive; return how many bytes it has.

    Parameters
    ----------
    to : path
        Ends with ``.tar.gz`` or ``.tgz``.
    only : sequence of str
        Packages that are packed, with those that they need; none: all that are installed.
    requirements : path, optional
        What to install and pack instead of what this Python has.
    level : int
        How much is spent on compressing, 0 to 9.
    """
    if not str(to).endswith(SUFFIXES):
        raise InvalidOption(option="--output", given=str(to), allowed=f"a name that ends with {', '.join(SUFFIXES)}")
    if not to.parent.is_dir():
        raise InvalidOption(option="--output", given=str(to), allowed="a name in a directory that is there")
    own = Path(sysconfig.get_paths()["purelib"])
    if requirements is None:
        return _write(to, _packages(own, only), level)
    with tempfile.TemporaryDirectory(prefix="penstock-pack-") as scratch:
        _install(requirements, Path(scratch))
        for name, wanted in _facts().items():
            found = next((each.version for each in Distribution.discover(name=name, path=[scratch])), None)
            if name != "python" and found != wanted:
                allowed = f"with {name}=={wanted}, which is the driver's ({found or 'it has none'})"
                raise InvalidOption(option="--requirements", given=str(requirements), allowed=allowed)
        return _write(to, _packages(Path(scratch), only), level)


def _install(requirements: Path, into: Path) -> None:
    if not requirements.is_file():
        raise InvalidOption(option="--requirements", given=str(requirements), allowed="a file that is there")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(into)]
    done = subprocess.run([*command, "-r", str(requirements)], check=False, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["pip failed"]
        raise SparkFailed(f"the requirements could not be installed: {said[-1].strip()}.", hint="See pip install -r.")


def _write(to: Path, packages: Iterator[tuple[str, Path]], level: int) -> int:
    site = _site()
    entries: Iterator[Entry] = _python(site)
    part = to.with_name(f".{to.name}.part")
    try:
        with tarfile.open(part, "w:gz", compresslevel=level) as archive:
            facts = {**_facts(), "platform": platform.platform()}
            for name, held in [(MANIFEST, json.dumps(facts, indent=2).encode()), *entries]:
                _add(archive, name, held)
            for name, path in packages:
                _add(archive, f"{site}/{name}", path)
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)
    return to.stat().st_size


def _add(archive: tarfile.TarFile, name: str, held: Path | bytes) -> None:
    if isinstance(held, Path):
        archive.add(held.resolve(), name, recursive=False)
        return
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(held), 0o755
    archive.addfile(info, io.BytesIO(held))


def _site() -> str:
    """Where packages lie, seen from the environment."""
    return Path(sysconfig.get_paths()["purelib"]).relative_to(sys.prefix).as_posix()


def _python(site: str) -> Iterator[Entry]:
    """The interpreter and its standard library."""
    base = Path(sys.base_prefix)
    binary = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    yield f"bin/{binary.name}", binary
    yield "bin/python", _LAUNCHER.format(binary=binary.name).encode()
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("INSTSONAME") or "")
    if ".so" in library.name and library.is_file():
        yield f"lib/{library.name}", library
    paths = sysconfig.get_paths()
    for directory in dict.fromkeys((Path(paths["stdlib"]), Path(sysconfig.get_path("platstdlib", vars=_base(base))))):
        for path in _held(directory, _SKIPPED):
            yield path.relative_to(base).as_posix(), path
    asked = "import site; print(*site.getsitepackages(), sep='\\n')"
    looks = subprocess.run([binary, "-S", "-c", asked], check=False, capture_output=True, text=True).stdout.splitlines()
    if not any(each.endswith(site) for each in looks):
        yield f"{Path(paths['stdlib']).relative_to(base).as_posix()}/sitecustomize.py", _SITE.format(site=site).encode()


def _base(base: Path) -> dict[str, str]:
    return {"platbase": str(base), "base": str(base), "installed_platbase": str(base)}


def _held(directory: Path, skipped: set[str]) -> Iterator[Path]:
    for parent, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if name not in skipped and not name.startswith("config-"))
        yield from (Path(parent) / file for file in sorted(files) if not file.endswith((".pyc", ".a")))


def _packages(site: Path, only: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Files of packages by their place in ``site-packages``; those that are worked on where they lie included."""
    chosen = [file for each in _closure(only, site) for file in each.files or []] if only else None
    if chosen is None:
        files = [path.relative_to(site) for path in _held(site, {"__pycache__"})]
    else:
        files = [Path(*each.parts) for each in chosen if ".." not in each.parts and each.suffix != ".pyc"]
    for file in files:
        name, path = file.as_posix(), site / file
        if name.startswith(tuple(f"{each}/" for each in _LEFT_OUT)) or not path.is_file():
            continue
        if path.suffix == ".pth" and len(file.parts) == 1:
            yield from _elsewhere(path)
            continue
        yield name, path


def _elsewhere(pth: Path) -> Iterator[tuple[str, Path]]:
    """What lies in the directories that a ``.pth`` file names."""
    for line in dict.fromkeys(map(str.strip, pth.read_text().splitlines())):
        if line.startswith("import ") and "__editable__" in line:
            allowed = f"no package that is installed for editing by a hook, as '{pth.name}' says: install it plainly"
            raise InvalidOption(option="environment", given=pth.stem, allowed=allowed)
        if line and not line.startswith(("#", "import ")) and Path(line).is_dir():
            yield from ((path.relative_to(line).as_posix(), path) for path in modules(Path(line)))


def _closure(names: Sequence[str], site: Path) -> list[Distribution]:
    """Distributions and those that they need, as far as they are installed."""
    found: dict[str, Distribution] = {}
    waiting = [(name, False) for name in names]
    while waiting:
        text, optional = waiting.pop()
        name, extras = _requirement(text)
        try:
            each = found.get(name) or next(iter(Distribution.discover(name=name, path=[str(site)])), None)
            each = each or distribution(name)
        except PackageNotFoundError:
            if optional:
                continue
            raise InvalidOption(option="--only", given=name, allowed="packages that are installed") from None
        is_new = name not in found
        found[name] = each
        for required in each.requires or []:
            _, _, marker = required.partition(";")
            extra = re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", marker)
            if (extra is None and is_new) or (extra is not None and extra[1] in extras):
                waiting.append((required, bool(marker)))
    return list(found.values())


def _requirement(text: str) -> tuple[str, set[str]]:
    """The name in a requirement, and its extras."""
    match = re.match(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?", text)
    assert match is not None
    extras = {each.strip() for each in (match[2] or "").split(",") if each.strip()}
    return re.sub(r"[-_.]+", "-", match[1]).lower(), extras
