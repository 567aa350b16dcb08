"""Whether the compiled modules are used: those of the engine, made from the same sources by ``scripts/compile.py``.

They do the same as their sources in two thirds of the processor time. They are left alone where a source has changed
since, and where ``PENSTOCK_COMPILED=0`` or `use_sources` says so. Python itself prefers a compiled module to the source
beside it, so there is something to do only where sources are to be used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from zlib import crc32

VARIABLE = "PENSTOCK_COMPILED"
LIBRARY = "penstock__mypyc"
"""Holds the code of all of them, beside the package."""
MANIFEST = "compiled.txt"
"""In the package: what the library was made of, as `state` says it."""
PACKAGES = ("dataset", "engine", "metrics")
BESIDE = ("protocol", "operators", "pipeline", "types", "connectors/base.py", "errors.py")
"""What compiled modules use. The types of its members are in their code, so a change of it makes them out of date."""
_INTERPRETED = b"msgspec.Struct"
"""Modules that define such classes are not compiled: msgspec reads the types of their members, which are gone then."""


def sources(package: Path) -> Iterator[Path]:
    """Yield the modules that are compiled."""
    for path in _modules(package, PACKAGES):
        if path.name != "__init__.py" and _INTERPRETED not in path.read_bytes():
            yield path


def _modules(package: Path, names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        yield from [package / name] if name.endswith(".py") else sorted((package / name).rglob("*.py"))


def state(package: Path) -> str:
    """Say in a number what the sources are, and what they use."""
    number = 0
    for path in _modules(package, (*PACKAGES, *BESIDE)):
        number = crc32(path.read_bytes(), crc32(path.relative_to(package).as_posix().encode(), number))
    return f"{number:08x}"


def are_there(package: Path) -> bool:
    """Whether there are compiled modules for this Python, all of them or some."""
    return any(_libraries(package))


def _libraries(package: Path) -> Iterator[Path]:
    for each in PACKAGES:
        yield from (package / each).rglob(f"*{EXTENSION_SUFFIXES[0]}")


def are_current(package: Path) -> bool:
    """Whether there are compiled modules for this Python, of the sources as they are."""
    library = package.parent / f"{LIBRARY}{EXTENSION_SUFFIXES[0]}"
    try:
        return library.is_file() and (package / MANIFEST).read_text("ascii") == state(package)
    except OSError:
        return False


class _Sources:
    """Finds the sources of Penstock's modules, whatever is beside them."""

    def __init__(self) -> None:
        self._finders: dict[str, FileFinder] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del target
        for place in path or () if name.startswith("penstock.") else ():
            finder = self._finders.get(place)
            if finder is None:
                finder = self._finders[place] = FileFinder(place, (SourceFileLoader, SOURCE_SUFFIXES))
            if (spec := finder.find_spec(name)) is not None:
                return spec
        return None


def use_sources() -> None:
    """Import sources from here on, in this process: tests exchange methods, which compiled classes do not allow."""
    sys.meta_path.insert(0, _Sources())


def choose() -> None:
    """Called by the package, before anything of it is imported."""
    package = Path(__file__).parent
    if are_there(package) and (os.environ.get(VARIABLE) == "0" or not are_current(package)):
        use_sources()
