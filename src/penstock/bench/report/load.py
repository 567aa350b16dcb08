"""Reads the results of a directory; the report is made of what is found here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.bench.rows import Results
from penstock.errors import InvalidOption

FILES_MAX = 200


@dataclass(frozen=True)
class Loaded:
    """A file of results."""

    path: Path
    results: Results

    @property
    def slug(self) -> str:
        """Its name in file names and anchors."""
        return self.path.stem


def load(directory: Path) -> tuple[list[Loaded], list[str]]:
    """Read every file of results in a directory and below it; also tells which JSON files were something else.

    Raises
    ------
    InvalidOption
        If there is no such directory, or nothing to report in it.
    """
    if not directory.is_dir():
        raise InvalidOption(option="DIR", given=str(directory), allowed="a directory with results")
    found: list[Loaded] = []
    skipped: list[str] = []
    for path in sorted(directory.rglob("*.json"))[:FILES_MAX]:
        try:
            found.append(Loaded(path, msgspec.json.decode(path.read_bytes(), type=Results)))
        except msgspec.DecodeError as error:
            skipped.append(f"{path.relative_to(directory)}: {error}")
    if not found:
        raise InvalidOption(
            option="DIR", given=str(directory), allowed="a directory with JSON that `bench` or a study has written"
        )
    return found, skipped
