"""Reads the results of a directory; the report is made of what is found here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.errors import PenstockError
from penstock_bench.meter.rows import Results

FILES_MAX = 200
SKIPPED_SHOWN_MAX = 10
MAKE_SOME = "`penstock bench run`, `search` and `compare` write some with --json DIR/NAME.json, so does every study."


class NothingToReport(PenstockError):
    """There are no results where some were looked for."""

    code = "NOTHING_TO_REPORT"


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
    NothingToReport
        If there is no such directory, or nothing to report in it.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise NothingToReport(f"'{directory}' {what}.", hint=f"Give the directory that holds results. {MAKE_SOME}")
    found: list[Loaded] = []
    skipped: list[str] = []
    for path in sorted(directory.rglob("*.json"))[:FILES_MAX]:
        try:
            found.append(Loaded(path, msgspec.json.decode(path.read_bytes(), type=Results)))
        except msgspec.DecodeError as error:
            skipped.append(f"{path.relative_to(directory)}: {error}")
    if not found:
        why = "".join(f"\n  {each}" for each in skipped[:SKIPPED_SHOWN_MAX])
        raise NothingToReport(
            f"'{directory}' has no results: {'none of its JSON files is one' if skipped else 'no JSON file'}.{why}",
            hint="" if skipped else MAKE_SOME,
        )
    return found, skipped
