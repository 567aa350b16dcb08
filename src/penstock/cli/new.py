"""`penstock new`: begins a package of the user's own from a template."""

from __future__ import annotations

import re
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.outcome import Exit, told
from penstock.errors import InvalidOption

_NAME = re.compile(r"[a-z][a-z0-9_-]{1,60}[a-z0-9]")
_PLACES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "__init__.py": "src/{name}/__init__.py",
    "source.py": "src/{name}/source.py",
    "sink.py": "src/{name}/sink.py",
    "table.py": "src/{name}/table.py",
    "test_conformance.py": "tests/test_conformance.py",
}


class Template(Enum):
    """What can be begun."""

    CONNECTOR = "connector"


def new(
    template: Annotated[Template, typer.Argument(help="What to begin.")],
    name: Annotated[str, typer.Argument(help="Name of the package, and of its directory: such as my-queue.")],
) -> None:
    """Begin a package of your own: a source, a sink and a table that work, and tests of what they promise."""
    with told(Exit.REFUSED):
        made = begin(template, name, Path.cwd())
    typer.echo(f"{made}/ is made: a source, a sink and a table that work on files, for you to change.")
    typer.echo(f"cd {made} && pip install -e . 'penstock[testing]' && pytest")


def begin(template: Template, name: str, where: Path) -> str:
    """Write the files of a template into a new directory; return its name."""
    if not _NAME.fullmatch(name):
        allowed = "small letters, digits, '-' and '_', from 3 to 62 of them, with a letter first"
        raise InvalidOption(option="name", given=name, allowed=allowed)
    if (where / name).exists():
        raise InvalidOption(option="name", given=name, allowed="a name that is no file or directory here yet")
    from penstock import __version__

    module = name.replace("-", "_")
    words = {
        "name": module,
        "dashed": module.replace("_", "-"),
        "camel": "".join(word.capitalize() for word in module.split("_")),
        "version": __version__,
    }
    source = files("penstock.cli") / "templates" / template.value
    for file, place in _PLACES.items():
        path = where / name / place.format(**words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((source / f"{file}.txt").read_text().format(**words))
    return name
