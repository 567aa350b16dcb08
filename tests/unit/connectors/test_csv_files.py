"""CSV files: columns by name, packed or not, each row once from any position; what does not fit is named."""

from __future__ import annotations

import gzip
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.base import Run
from penstock.errors import (
    CheckpointMismatch,
    InvalidOption,
    SourceFailed,
    SourceMissing,
    SourceUnreadable,
    TypeMismatch,
)
from penstock.types import Schema, record_dict

SCHEMA = "id bigint, name string, price double, at timestamp, day date, ok boolean, tags array<int>"
HEADER = "name,id,price,extra,at,day,ok,tags"


def read_all(reader: Any, now_us: int = 0, records_max: int = 2) -> list[Any]:
    rows: list[Any] = []
    while (batch := reader.poll(now_us, records_max)) is not None:
        assert reader.rows(Run(batch.at, len(batch.rows))) == batch.rows, "any reader can read it again"
        rows += batch.rows
    return rows


def zstd(text: str) -> bytes:
    return pa.compress(text.encode(), "zstd", asbytes=True)


def test_columns_are_found_by_name_and_values_are_typed(tmp_path: Path) -> None:
    rows = [
        'shoes,1,2.5,x,2026-01-02T03:04:05Z,2026-01-02,true,"[1, 2]"',
        '"a ""b"", c",2,,,1000000,3,0,',
        ",-3,1e3,,,,,\r",
    ]
    (tmp_path / "a.csv").write_text("\ufeff" + "\n".join([HEADER, *rows]), encoding="utf-8")
    source = ps.csv_files(tmp_path, schema=SCHEMA)
    source.check()
    found = read_all(source.reader(0, 1, 0))
    assert [tuple(record_dict(row).values()) for row in found] == [
        (1, "shoes", 2.5, 1_767_323_045_000_000, 20_455, True, [1, 2]),
        (2, 'a "b", c', None, 1_000_000, 3, False, None),
        (-3, None, 1_000.0, None, None, None, None),
    ]


def test_columns_of_every_type(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "user id,price,small,sizes,inner\n"
        'u,12345678901234567.20,0.1,"{""s"": 0.50}","{""a b"": 1, ""at"": ""1970-01-01T00:00:01Z""}"\n'
        ",,,,\n"
    )
    ddl = "`user id` string, price decimal(20,2), small float, sizes map<string, decimal(5,2)>"
    schema = Schema.parse(ddl + ", inner struct<`a b`: int, at: timestamp>")
    source = ps.csv_files(tmp_path, schema=schema)
    source.check()
    inner = {"a b": 1, "at": 1_000_000}
    full = ("u", Decimal("12345678901234567.20"), 0.1, {"s": Decimal("0.50")}, inner)
    assert read_all(source.reader(0, 1, 0)) == [schema.coerce(full), schema.coerce({})]
    (tmp_path / "a.csv").write_text("price\n1.234\n")
    broken = ps.csv_files(tmp_path, schema="price decimal(5,2)")
    with pytest.raises(SourceFailed, match=r"line 2: column 'price': 1.234 does not fit decimal\(5,2\)"):
        read_all(broken.reader(0, 1, 0))


def test_files_that_are_packed_or_have_other_columns_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,a\n2,b\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"name,id\nc,3\n"))
    (tmp_path / "c.csv.zst").write_bytes(zstd("id,x,name\n4,,d\n5,,e"))
    (tmp_path / "d.tsv.zst").write_bytes(zstd("id,name\n6,f\n") + zstd("7,g\n"))
    (tmp_path / "ignored.txt").write_text("id,name\n8,h\n")
    source = ps.csv_files(tmp_path, schema="id bigint, name string")
    source.check()
    rows = [row for part in range(3) for row in read_all(source.reader(part, 3, 0))]
    assert sorted((row.id, row.name) for row in rows) == list(zip(range(1, 8), "abcdefg", strict=True))


def test_tabs_nulls_and_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\t\t\n1\tNA\t\n \ta\tb \n")
    source = ps.csv_files(tmp_path, schema="a string, b string, c string", header=False, delimiter="\t", null="NA")
    found = [tuple(record_dict(row).values()) for row in read_all(source.reader(0, 1, 0))]
    assert found == [("", "", ""), ("1", None, ""), (" ", "a", "b ")]


@settings(max_examples=25)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 20), st.integers(1, 4), st.booleans())
def test_every_row_once_from_any_position_while_files_come_and_grow(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], stop_after: int, records_max: int, packed: bool
) -> None:
    place = tmp_path_factory.mktemp("csv")
    source = ps.csv_files(place, schema="id bigint", follow=True)
    reader, expected, number, now_us = source.reader(0, 1, 0), list[int](), 0, 0
    found: list[int] = []
    for at, count in enumerate(counts):
        text = f"id,file\n{''.join(f'{number + i},{at}{chr(10)}' for i in range(count))}"
        expected += range(number, number + count)
        number += count
        if packed and at % 2:
            (place / f"{at}.csv.zst.part").write_bytes(zstd(text))
            (place / f"{at}.csv.zst.part").rename(place / f"{at}.csv.zst")
        else:
            half = len(text) // 2
            with (place / f"{at}.csv").open("w") as file:
                file.write(text[:half])
                file.flush()
                now_us += 10**6
                found += [row.id for row in read_all(reader, now_us, records_max)]
                file.write(text[half:])
        for _ in range(3):
            batch = reader.poll(now_us := now_us + 10**6, records_max)
            found += [row.id for row in batch.rows] if batch is not None else []
        if len(found) >= stop_after:
            position = reader.position()
            reader.close()
            reader = source.resumed({0: position}).reader(0, 1, 0)
            reader.seek(position)
    for _ in range(3):
        now_us += 10**6
        found += [row.id for row in read_all(reader, now_us, records_max)]
    assert sorted(found) == expected
    reader.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,name\n1,a\nx,b\n", r"line 3: column 'id': 'x' is not a whole number.*parse it in the pipeline"),
        ("id,name\n\n1,a,b\n", "line 3: it has 3 fields, not 2"),
        ('id,name\n1,"a\nb"\n', "line 2: .*a quoted field must end on its line"),
        ("id,name\n99999999999,a\n", "out of range for int"),
        ("id,other\n1,a\n", "its header has no column 'name'.*It has: id, other"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    source = ps.csv_files(tmp_path / "a.csv", schema="id int, name string")

    def run() -> None:
        source.check()
        read_all(source.reader(0, 1, 0))

    with pytest.raises(SourceFailed, match=words):
        run()


def test_wrong_options_and_damaged_files(tmp_path: Path) -> None:
    for options in ({"delimiter": ""}, {"delimiter": '"'}, {"null": None}, {"header": 1}, {"follow": "yes"}):
        with pytest.raises(InvalidOption):
            ps.csv_files(tmp_path, **{"schema": "a int", **options})
    with pytest.raises(TypeMismatch, match="binary"):
        ps.csv_files(tmp_path, schema="a binary")
    with pytest.raises(SourceMissing):
        ps.csv_files(tmp_path, schema="a int").check()
    numbers = [random.Random(1).randrange(1 << 30)] + [i * 7919 % (1 << 30) for i in range(60_000)]
    whole = zstd("a\n" + "".join(f"{i}\n" for i in numbers))
    (tmp_path / "a.csv.zst").write_bytes(whole[:100])
    with pytest.raises(SourceUnreadable, match=r"a\.csv\.zst' cannot be read: it ends within"):
        ps.csv_files(tmp_path, schema="a int").check()
    (tmp_path / "a.csv.zst").write_bytes(whole[: len(whole) // 2])
    source = ps.csv_files(tmp_path, schema="a int")
    reader = source.reader(0, 1, 0)
    with pytest.raises(SourceUnreadable, match=r"a\.csv\.zst' cannot be read: it ends within"):
        read_all(reader, 0, 10_000)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    damaged[len(whole) // 2 + 1] ^= 255
    (tmp_path / "b.csv.zst").write_bytes(damaged)
    with pytest.raises((SourceUnreadable, SourceFailed), match=r"b\.csv\.zst"):
        read_all(ps.csv_files(tmp_path / "b.csv.zst", schema="a int").reader(0, 1, 0), 0, 10_000)
    (tmp_path / "b.csv.zst").unlink()
    followed = ps.csv_files(tmp_path, schema="a int", follow=True).reader(0, 1, 0)
    found = read_all(followed, 1, 100_000)
    with (tmp_path / "a.csv.zst").open("ab") as file:
        file.write(whole[len(whole) // 2 :])
    for now_us in range(10**6, 10**7, 10**6):
        found += read_all(followed, now_us, 100_000)
    assert [row.a for row in found] == numbers, "a file that is still being written is gone on with"


def shares(source: Any, partitions: int) -> list[list[int]]:
    return [sorted(row.id for row in read_all(source.reader(part, partitions, 0))) for part in range(partitions)]


@pytest.mark.parametrize("follow", [False, True])
def test_files_with_one_header_are_dealt_out(tmp_path: Path, follow: bool) -> None:
    for number in range(4):
        (tmp_path / f"{number}.csv").write_text(f"id,name\n{number},x\n{number + 10},y\n")
    source = ps.csv_files(tmp_path, schema="id bigint", follow=follow)
    source.check()
    assert shares(source, 4) == [[number, number + 10] for number in range(4)]


def test_a_file_of_a_header_only_is_known_when_it_has_a_row(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("id\n")
    source = ps.csv_files(tmp_path, schema="id bigint", follow=True)
    source.check()
    reader = source.reader(0, 1, 0)
    assert read_all(reader) == []
    for number, name in enumerate("ab"):
        with (tmp_path / f"{name}.csv").open("a") as file:
            file.write(f"{number}\n")
    assert sorted(row.id for row in read_all(reader, now_us=1_000_000)) == [0, 1]


def test_a_header_may_be_longer_than_what_tells_other_files_apart(tmp_path: Path) -> None:
    header = ",".join(["id", *(f"column_{number}" for number in range(300))])
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(f"{header}\n{number}{',' * 300}\n")
    source = ps.csv_files(tmp_path, schema="id bigint")
    source.check()
    assert shares(source, 2) == [[0], [1]]


def test_a_checkpoint_that_knows_files_by_their_header_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    reader = ps.csv_files(tmp_path, schema="id bigint", header=False, null="id").reader(0, 1, 0)
    read_all(reader)
    with pytest.raises(CheckpointMismatch, match="another checkpoint"):
        ps.csv_files(tmp_path, schema="id bigint").resumed({0: reader.position()})
