"""The CSV source: one record per line of the files of a directory, a pattern or a single path."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from penstock.checks import Flag, local_path
from penstock.connectors.base import Run, SourceBatch
from penstock.connectors.json_files import JsonFiles
from penstock.connectors.lines import HEADER_BYTES, Content
from penstock.connectors.lines_reader import At, LinesReader
from penstock.connectors.plain import check_json
from penstock.connectors.texts import reader_of
from penstock.connectors.tracking import PACKED, Entry
from penstock.errors import BadRecord, InvalidOption, SourceFailed, TypeMismatch
from penstock.types import Record, Schema, TypeKind

SUFFIXES = tuple(suffix + packed for suffix in (".csv", ".tsv") for packed in ("", *PACKED))
_LINE_END = b"\r\n"
_decode_at = msgspec.msgpack.Decoder(At).decode


class CsvFiles(JsonFiles):
    """A source of rows; build it with :func:`csv_files`."""

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    def __init__(
        self, path: str, schema: Schema, *, header: bool, delimiter: str, null: str, follow: bool = False
    ) -> None:
        super().__init__(path, follow=follow)
        self._schema = schema
        self._header = header
        self._delimiter = delimiter
        self._null = null

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def kind(self) -> str:
        return "csv_files"

    def dataframe(self, session: Any) -> Any:
        del session
        return None  # its readers find the columns

    @property
    def is_bounded(self) -> bool:
        return not self._follow

    @property
    def is_split(self) -> bool:
        return False

    def check(self) -> None:
        super().check()
        reader = self._reader(list, lambda _: False, follow=False)
        for entry in self._found or ():
            if entry.key is not None:
                reader.places(entry.key, entry.path)

    def _reader(self, look: Callable[[], list[Entry]], owned: Callable[[int], bool], *, follow: bool) -> CsvReader:
        return CsvReader(look, owned, self._schema, self._header, self._delimiter, self._null, follow=follow)


class CsvReader(LinesReader):
    """Reads rows: lines without the header, cut into fields.

    Parameters
    ----------
    header : bool
        The first line of a file names its columns.
    null : str
        A field with this text is null.
    """

    def __init__(
        self,
        look: Callable[[], list[Entry]],
        owned: Callable[[int], bool],
        schema: Schema,
        header: bool,
        delimiter: str,
        null: str,
        *,
        follow: bool,
    ) -> None:
        super().__init__(look, owned, follow=follow, spaces=_LINE_END, header=header)
        self._schema = schema
        self._header = header
        self._delimiter = delimiter
        self._null = null
        self._fields = [(each.name, reader_of(each.type)) for each in schema.fields]
        self._places: dict[int, tuple[int, list[int]]] = {}
        """By the key of a file: how many fields a line has, and where those of the columns are."""

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        while self._header:
            self._load(now_us, 1)
            if not self._held or self._held[0][1].byte:
                break
            self._take(1)  # the first line of its file
            self.offset -= 1
        batch = super().poll(now_us, records_max)
        if batch is not None:
            assert isinstance(batch.at, bytes)
            run = Run(batch.at, len(batch.rows))
            batch.rows = self._rows(run, [row.value for row in batch.rows])
        return batch

    def due_records(self, now_us: int) -> int | None:
        del now_us
        return None  # lines are cut into columns by `poll` only

    def rows(self, run: Run) -> list[Record]:
        return self._rows(run, [row.value for row in super().rows(run)])

    def places(self, key: int, path: str) -> tuple[int, list[int]]:
        """How many fields a line of a file has, and where those of the columns are; it looks at the header once."""
        if not self._header:
            return len(self._fields), list(range(len(self._fields)))
        found = self._places.get(key)
        if found is None:
            names = self._cut(_first_line(path).removeprefix(b"\xef\xbb\xbf"))
            missing = [name for name, _ in self._fields if name not in names]
            if missing:
                raise SourceFailed(
                    source=f"'{path}'",
                    cause=f"its header has no column '{missing[0]}'",
                    hint=f"It has: {', '.join(names)}. Give header=False where the first line is a row.",
                )
            found = self._places[key] = len(names), [names.index(name) for name, _ in self._fields]
        return found

    def _cut(self, line: bytes) -> list[str]:
        text = line.decode()
        if '"' not in text:
            return text.split(self._delimiter)
        return next(csv.reader([text], delimiter=self._delimiter, strict=True))

    def _rows(self, run: Run, lines: list[bytes]) -> list[Record]:
        assert isinstance(run.at, bytes)
        at = _decode_at(run.at)
        count, places = self.places(at.key, at.path)
        columns = [(name, read, place) for (name, read), place in zip(self._fields, places, strict=True)]
        null, make, check = self._null, self._schema.record_type, self._schema.check
        rows: list[Record] = []
        name = ""
        try:
            for line in lines:
                name = ""
                texts = self._cut(line)
                if len(texts) != count:
                    raise BadRecord(f"it has {len(texts)} fields, not {count}.")
                values = []
                for name, read, place in columns:  # noqa: B007 -- the error names it
                    text = texts[place]
                    values.append(None if text == null else read(text))
                name = ""
                rows.append(check(make(*values)))
        except (BadRecord, UnicodeDecodeError, csv.Error) as error:
            raise self._bad(run, len(rows), name, error) from None
        return rows

    def _bad(self, run: Run, index: int, name: str, error: Exception) -> SourceFailed:
        (spot,) = self.spots(run, [index])
        cause = error.what.rstrip(".") if isinstance(error, BadRecord) else str(error)
        if isinstance(error, csv.Error):
            cause = f"{error}; a quoted field must end on its line"
        column = f"column '{name}': " if name else ""
        hint = "Declare the column as string and parse it in the pipeline, where bad records can be kept apart."
        return SourceFailed(source=f"'{spot.file}', line {spot.line}", cause=column + cause, hint=hint if name else "")


def _first_line(path: str) -> bytes:
    content = Content(path)
    try:
        data = b""
        while (
            b"\n" not in data.lstrip(_LINE_END)
            and len(data) < HEADER_BYTES
            and (more := content.read(HEADER_BYTES - len(data)))
        ):
            data += more
        return data.lstrip(_LINE_END).partition(b"\n")[0].strip(_LINE_END)
    finally:
        content.close()


def csv_files(
    path: str | os.PathLike[str],
    *,
    schema: str | Schema,
    header: bool = True,
    delimiter: str = ",",
    null: str = "",
    follow: bool = False,
) -> CsvFiles:
    """Read CSV files, each line once.

    Parameters
    ----------
    path : str or path
        A file, a pattern such as ``"in/*.csv"``, or a directory (its ``.csv`` and ``.tsv`` files, also with ``.gz`` or
        ``.zst`` behind that). UTF-8.
    schema : str or Schema
        The columns, in Spark's DDL. With a header they are found by their names, in any order, and others are left out.
    header : bool
        The first line of each file names its columns.
    delimiter : str
        One character. Fields may be in double quotes, but a line break ends a row also there.
    null : str
        A field with this text is null.
    follow : bool
        Go on for ever, as :func:`json_files` does: new files are found, and lines that are appended.

    Notes
    -----
    Times are in ISO form or microseconds since the epoch, dates in ISO form; arrays, maps and structs are JSON. A line
    that does not fit fails the job, and is named. Files are dealt out to the instances. A file is known by its header
    and its first row, so one without a row is not looked at.

    Examples
    --------
    >>> ps.stream("sales", ps.csv_files("in", schema="shop string, at timestamp, price double"))   # doctest: +SKIP
    """
    parsed = Schema.parse(schema)
    check_json(parsed)
    binary = [each.name for each in parsed.fields if each.type.kind is TypeKind.BINARY]
    if binary:
        raise TypeMismatch(what=f"column '{binary[0]}' is binary, which CSV cannot hold.", hint="Declare it as string.")
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise InvalidOption(option="delimiter", given=delimiter, allowed="one character, and no quote or line break")
    if not isinstance(null, str):
        raise InvalidOption(option="null", given=null, allowed="a text")
    return CsvFiles(
        local_path("path", os.fspath(path)),
        parsed,
        header=Flag().read("header", header),
        delimiter=delimiter,
        null=null,
        follow=Flag().read("follow", follow),
    )
