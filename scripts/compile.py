"""Compiles the modules that run in every turn of a worker, beside their sources: ``python scripts/compile.py``.

It takes about a minute, and a C compiler. Whatever goes wrong, the sources do the same, only slower.
"""

from __future__ import annotations

import io
import os
import sys
import sysconfig
import tempfile
from contextlib import redirect_stdout
from fcntl import LOCK_EX, flock
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shutil import which
from types import ModuleType

SOURCES = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SOURCES / "penstock"


def main() -> str | None:
    """Compile, unless it is done; say what is missing."""
    spec = spec_from_file_location("compiled", PACKAGE / "compiled.py")
    assert spec is not None
    assert spec.loader is not None
    compiled = module_from_spec(spec)  # without the package, which would be imported otherwise
    spec.loader.exec_module(compiled)
    with (PACKAGE / "compiled.py").open() as file:
        flock(file, LOCK_EX)  # one at a time; released at the end of the process at the latest
        return make(compiled)


def make(compiled: ModuleType) -> str | None:
    """Compile what is not compiled yet."""
    if compiled.are_current(PACKAGE):
        return None
    command = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if which(command) is None:
        return f"there is no C compiler ({command}): the engine runs from its sources, more slowly"
    print("compiling the engine, about a minute…", flush=True)
    clean(compiled.LIBRARY)
    was, files = compiled.state(PACKAGE), [str(path.relative_to(SOURCES)) for path in compiled.sources(PACKAGE)]
    os.chdir(SOURCES)
    said = io.StringIO()
    try:
        with redirect_stdout(said), tempfile.TemporaryDirectory() as directory:
            build(files, directory)
    except BaseException:
        print(said.getvalue(), file=sys.stderr)
        clean(compiled.LIBRARY)
        raise
    (PACKAGE / compiled.MANIFEST).write_text(was, "ascii")
    return None


def build(files: list[str], directory: str) -> None:
    """Make C of the modules, and libraries of that, in the directory at first."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    flags = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", f"--cache-dir={directory}/cache"]
    # Higher levels take twice as long to compile and are no faster here.
    modules = mypycify([*flags, *files], opt_level="1", debug_level="0", group_name="penstock", target_dir=directory)
    command = build_ext(Distribution({"name": "penstock", "ext_modules": modules, "package_dir": {"": "."}}))
    command.build_temp, command.build_lib = f"{directory}/objects", f"{directory}/libraries"
    command.inplace, command.parallel = True, os.cpu_count()
    command.ensure_finalized()
    command.run()


def clean(library: str) -> None:
    """Remove what was compiled before; first what says that it is up to date."""
    for path in [PACKAGE / "compiled.txt", *SOURCES.glob(f"{library}*.so"), *PACKAGE.rglob("*.so")]:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
