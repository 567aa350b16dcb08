"""The mark of a files sink: up to which part its output is complete, and what its columns are; readers go by it.

Instances make their parts visible one by one. The driver writes the mark when it has heard that all of them have: a
part whose number is not above that of the mark has no sibling that is still to come.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from penstock.errors import SourceFailed, SourceMissing

NAME = "_penstock.json"
PART = re.compile(r"part-(\d{8,})-\d{4,}\.(jsonl|parquet)")
"""A part: its number and its format."""


class Mark(msgspec.Struct, frozen=True):
    """What is complete."""

    part: int
    """Number of the last complete epoch's parts, whether it has any or not."""
    schema: str
    """The columns, in Spark's DDL."""
    version: int = 1


def write_mark(directory: Path, mark: Mark) -> None:
    """Put a mark in the place of the one before."""
    unfinished = directory / f".{NAME}"
    unfinished.write_bytes(msgspec.json.encode(mark) + b"\n")
    unfinished.replace(directory / NAME)


def read_mark(directory: Path) -> Mark:
    """Read the mark of a directory.

    Raises
    ------
    SourceMissing, SourceFailed
        If there is none, or none that can be read.
    """
    if not directory.is_dir():
        raise SourceMissing(path=str(directory), read="by Spark")
    try:
        return msgspec.json.decode((directory / NAME).read_bytes(), type=Mark)
    except FileNotFoundError:
        raise SourceFailed(
            source=f"'{directory}'",
            cause="there is no committed output of a job",
            hint="Give the directory of ps.files(…); a job that has begun writes its first mark when it commits.",
        ) from None
    except msgspec.DecodeError as error:
        raise SourceFailed(source=f"'{directory / NAME}'", cause=f"it cannot be read: {error}") from None


def parts(directory: Path, after: int, until: int) -> list[Path]:
    """The parts with numbers above ``after``, up to ``until``, in their order."""
    found = {path: match for path in directory.iterdir() if (match := PART.fullmatch(path.name))}
    return sorted(path for path, match in found.items() if after < int(match[1]) <= until)
