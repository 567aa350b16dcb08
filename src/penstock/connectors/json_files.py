"""The JSON-lines source: one record per line of the files of a directory, a pattern or a single path."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from penstock.checks import local_path
from penstock.connectors.base import Position, Run, Source, Spot
from penstock.connectors.lines_reader import SCHEMA, LinesReader, dealt_out, files_in
from penstock.connectors.tracking import SUFFIXES, Entry, entries, head_of
from penstock.errors import CheckpointMismatch, InvalidOption, SourceMissing, TypeMismatch
from penstock.types import Schema

_SPACES = " \t\r\x0b\x0c"


class JsonFiles(Source):
    """A source of lines; build it with :func:`json_files`.

    A file belongs to a partition by its first line, so that it stays there when it is renamed or compressed: files that
    are there at the start are dealt out in turn, later ones by the fingerprint of the line.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    """Of the files that are read of a directory."""
    _header: bool = False
    """Whether files begin with a header, by which they cannot be told apart."""

    def __init__(self, path: str, *, follow: bool = False) -> None:
        self._path = path
        self._follow = follow
        self._found: list[Entry] | None = None
        """The files at the start; found once, so that all workers agree on them."""
        self._kept: dict[int, int] = {}
        """Partitions of the files that the run before had begun, by their keys."""

    @property
    def schema(self) -> Schema:
        return SCHEMA

    @property
    def kind(self) -> str:
        return "json_files"

    @property
    def is_split(self) -> bool:
        return True

    @property
    def is_bounded(self) -> bool:
        # A directory that is followed has a history too: what is there when a backfill starts.
        return True

    def dataframe(self, session: Any) -> Any:
        return lines_frame(self.paths(), session)

    def check(self) -> None:
        self._found = self._look_up()
        for entry in self._found:
            if not os.access(entry.path, os.R_OK):
                raise InvalidOption(option="path", given=entry.path, allowed="files that may be read")

    def _look_up(self) -> list[Entry]:
        found = entries(self._path, self.suffixes)
        if not found and not (self._follow and self._may_come()):
            raise SourceMissing(path=self._path)
        whole, header = not self._follow, self._header
        return [replace(each, key=head_of(each.path, whole=whole, header=header)) for each in found]

    def paths(self) -> list[str]:
        """The files that are there, for those who read them by other means; copies that are being made left out."""
        found = {entry.path for entry in entries(self._path)}
        return sorted(
            path for path in found if path.removesuffix(".gz") == path or path.removesuffix(".gz") not in found
        )

    def _may_come(self) -> bool:
        """Whether files can appear there: an empty directory, or one that a pattern or the name of a file is in."""
        path = Path(self._path)
        is_name = path.name.endswith(self.suffixes) or any(each in path.name for each in "*?[")
        return path.is_dir() or (is_name and path.parent.is_dir())

    def spots(self, run: Run, indexes: Sequence[int]) -> list[Spot]:
        reader = self._reader(list, lambda _: False, follow=False)
        found = reader.spots(run, indexes)
        reader.close()
        return found

    def resumed(self, positions: Mapping[int, Position]) -> JsonFiles:
        if any(isinstance(position, int) for position in positions.values()):
            raise CheckpointMismatch(
                "the checkpoint counts lines, and does not say in which files.",
                hint="It is of an earlier version: start anew with another checkpoint directory.",
            )
        if any(file.header != self._header for position in positions.values() for file in files_in(position)):
            raise CheckpointMismatch(
                "the checkpoint knows files with a header by another part of them.",
                hint="It is of an earlier version, or of another header=: use another checkpoint directory.",
            )
        source = copy.copy(self)
        source._kept = {file.key: each for each, position in positions.items() for file in files_in(position)}
        return source

    @property
    def place(self) -> str:
        return self._path

    def up_to(self, where: object) -> JsonFiles | None:
        return self if where is None else None

    def signature(self, partitions: int) -> str:
        del partitions  # files can be dealt out to any number
        return f"{self.kind} ({self.schema.ddl})"

    def redealt(self, positions: Mapping[int, Position], partitions: int) -> dict[int, Position]:
        return dealt_out(positions.values(), partitions)

    def partitions(self, parallelism: int) -> int:
        # As many as there may be files: one that is added must not change the number.
        path = Path(self._path)
        is_one = not path.is_dir() and (path.exists() or path.name.endswith(self.suffixes)) and "*" not in path.name
        return 1 if is_one else parallelism

    def reader(self, partition: int, partitions: int, start_us: int) -> LinesReader:
        del start_us
        if self._found is None:
            self._found = self._look_up()
        found = self._found
        owners, dealt = dict(self._kept), 0
        for entry in found:
            if entry.key is not None and entry.key not in owners:
                owners[entry.key] = dealt % partitions
                dealt += 1
        look: Callable[[], list[Entry]] = (
            (lambda: entries(self._path, self.suffixes)) if self._follow else (lambda: found)
        )
        return self._reader(look, lambda key: owners.get(key, key % partitions) == partition, follow=self._follow)

    def _reader(self, look: Callable[[], list[Entry]], owned: Callable[[int], bool], *, follow: bool) -> LinesReader:
        return LinesReader(look, owned, follow=follow)


def lines_frame(paths: list[str], session: Any) -> Any:
    """The lines of files as a DataFrame, as readers give them: no space around them, and no blank ones."""
    from pyspark.sql import functions as F

    text = session.read.option("lineSep", "\n").text(paths)
    stripped = F.btrim(F.col("value"), F.lit(_SPACES))
    return (
        text.select(stripped.alias("value")).where("value <> ''").select(F.col("value").cast("binary").alias("value"))
    )


def json_files(path: str | os.PathLike[str], *, follow: bool = False) -> JsonFiles:
    """Read files of JSON lines; ``.parse_json(schema)`` turns them into columns.

    Parameters
    ----------
    path : str or path
        A file, a pattern such as ``"in/*.jsonl"``, or a directory (its ``.jsonl``, ``.ndjson`` and ``.json``
        files, also with ``.gz`` or ``.zst`` behind that). Files that are there are read in the order of their names,
        dealt in turn to the partitions; blank lines are skipped.
    follow : bool
        Go on for ever: new files are found, and what is appended to files is read, as soon as the line has its
        line break. Files may be renamed within their directory, and compressed. Otherwise the source ends when the
        files that were there at the start have been read.

    Notes
    -----
    The files must be reachable under the same path from every worker. They may grow, also between a run and the one
    that resumes it, and files may be added: each line is read once. What was read of a file must stay as it is;
    otherwise the job fails and names the file. ``X.gz`` or ``X.zst`` beside ``X`` is taken
    for a copy of it.
    """
    if not isinstance(follow, bool):
        raise TypeMismatch(what=f"follow={follow!r} is not True or False.")
    return JsonFiles(local_path("path", os.fspath(path)), follow=follow)
