"""The conformance suite over our own connectors, and over ones that break each of their promises: it finds them."""

from __future__ import annotations

import gc
import gzip
import json
import re
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.base import Position, SinkWriter, SourceBatch, SourceReader, WriterContext
from penstock.connectors.buffered import BufferedWriter
from penstock.connectors.memory import Records
from penstock.connectors.texts import json_writer
from penstock.errors import InterfaceMismatch
from penstock.testing import check_sink, check_source, check_table
from penstock.testing.conformance.columns import supported
from penstock.types import Record, Schema
from waiting import WAIT_S

LINES = [b'{"a": 1}', b"bad", b'{"a": "' + b"x" * 200_000 + b'"}', b'{"a": 2}']


# --- sources ----------------------------------------------------------------------------------------------------------


def lines_in(directory: Path) -> list[bytes]:
    (directory / "a.jsonl").write_bytes(b"\n".join([*LINES[:2], b"", *LINES[2:]]) + b"\n")
    (directory / "b.jsonl.gz").write_bytes(gzip.compress(b"\n".join([b"%d" % n for n in range(30)])))
    (directory / "empty.jsonl").touch()
    return [*LINES, *(b"%d" % n for n in range(30))]


def after(position: int | None) -> Iterator[dict[str, int]]:
    yield from ({"n": n} for n in range(0 if position is None else position + 1, 12))


def of_partition(number: int) -> Iterator[dict[str, int]]:
    yield from ({"n": 100 * number + n} for n in range(4))


def test_scripts_and_generators() -> None:
    rows = [("a", 1), ("b", None), ("", -1)] * 5
    assert not check_source(ps.records(rows, schema="k string, n bigint", partitions=2), rows).left_out
    check_source(ps.records([], schema="k string"), [])
    columns = {"n": ps.fields.sequence(), "at": ps.fields.event_time()}
    check_source(ps.generator(columns, rate=1_000, total=30, format="columns", partitions=2))


def test_files(tmp_path: Path) -> None:
    assert not check_source(ps.json_files(tmp_path), lines_in(tmp_path)).left_out
    (tmp_path / "c.csv").write_text('k,n\na,1\n,\n"x, y",3\n')
    (tmp_path / "bad.csv").write_text("k,n\na,one\n")
    report = check_source(
        ps.csv_files(tmp_path / "c.csv", schema="k string, n bigint"),
        [("a", 1), (None, None), ("x, y", 3)],
        refused=ps.csv_files(tmp_path / "missing.csv", schema="k string"),
        broken=ps.csv_files(tmp_path / "bad.csv", schema="k string, n bigint"),
    )
    assert "a record that cannot be read is told" in report.passed
    with pytest.raises(AssertionError, match="it is not refused"):
        check_source(ps.records([1], schema="n bigint"), refused=ps.records([1], schema="n bigint"))
    table = pa.table({"k": ["a", None, "c"] * 7, "n": [1, 2, None] * 7})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=5)
    check_source(ps.parquet_files(tmp_path / "p.parquet"), table.to_pylist())


def test_files_that_grow(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n2\n")

    def append() -> list[bytes]:
        with (tmp_path / "a.jsonl").open("a") as file:
            file.write("3\n")
        (tmp_path / "b.jsonl").write_text("4\n")
        return [b"3", b"4"]

    check_source(ps.json_files(tmp_path, follow=True), [b"1", b"2"], ends=False, append=append)


def test_iterators() -> None:
    check_source(ps.from_iterator(after, schema="n bigint", position=lambda row: row["n"]), range(12))
    dealt = ps.from_iterator(of_partition, schema="n bigint", repeats=True, partitions=3)
    check_source(dealt, [100 * part + n for part in range(3) for n in range(4)])


def test_sockets_are_read_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with closing(client):
                    client.sendall(b"one\ntwo\n")

        threading.Thread(target=serve, daemon=True).start()
        source = ps.tcp_lines("127.0.0.1", server.getsockname()[1])
        assert "it is read again" in check_source(source, [b"one", b"two"], replays=False).left_out


def test_tables() -> None:
    rows = [("a", 1), ("b", None)]
    check_table(ps.table(rows, schema="k string, n bigint", key="k"), rows, absent="c")


# --- sinks ------------------------------------------------------------------------------------------------------------


def json_lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in directory.glob("part-*") for line in path.read_text().splitlines()]


def test_memory_and_console(capsys: pytest.CaptureFixture[str]) -> None:
    memory = ps.memory()
    check_sink(memory, memory.dicts, resumes=False)
    printed = [""]

    def shown() -> list[dict[str, Any]]:
        printed[0] += capsys.readouterr().out
        found = re.findall(r"^id=(\d+)  text=(.*?)  number=", printed[0], re.DOTALL | re.MULTILINE)
        return [{"id": int(number), "text": text if text != "None" else None} for number, text in found]

    check_sink(ps.console(), shown, resumes=False)


def test_files_as_json_lines_and_as_parquet(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    report = check_sink(
        lambda: ps.files(tmp_path / "lines", existing="append"),
        lambda: json_lines(tmp_path / "lines"),
        refused=ps.files(tmp_path / "file"),
    )
    assert not report.left_out

    def rows() -> list[dict[str, Any]]:
        return [row for path in (tmp_path / "pq").glob("part-*") for row in pq.read_table(path).to_pylist()]

    assert not check_sink(lambda: ps.files(tmp_path / "pq", format="parquet", existing="append"), rows).left_out


def test_a_parquet_file_that_is_given_up_is_given_up_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", noise.append)
    schema = Schema.parse("n bigint")
    for place in (tmp_path, "memory://given-up/out"):
        writer = ps.files(place, format="parquet").writer(schema, WriterContext("job", "out", 0, 1, "one"))
        writer.write_batch(schema.to_batch([schema.record_type(1)]), schema)
        writer.close()
        del writer
    gc.collect()
    assert not noise


def test_files_in_an_object_store() -> None:
    store = fsspec.filesystem("memory")

    def rows() -> list[dict[str, Any]]:
        parts = store.glob("/conformance/out/part-*")
        return [json.loads(line) for part in parts for line in store.cat(part).decode().splitlines()]

    check_sink(lambda: ps.files("memory://conformance/out", existing="append"), rows)


def test_sqlite(tmp_path: Path) -> None:
    def rows() -> list[dict[str, Any]]:
        if not (tmp_path / "db").exists():
            return []
        with closing(sqlite3.connect(tmp_path / "db")) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute("SELECT * FROM t")]

    report = check_sink(lambda: ps.sqlite(tmp_path / "db", "t", key="id"), rows, keyed=True)
    refused = {name.split()[2].strip("'") for name in report.left_out}
    assert refused == {"price", "tags", "sizes", "inner"}, "small, at and day are written"


def test_functions(tmp_path: Path) -> None:
    path = tmp_path / "rows"

    def put(record: Any) -> None:
        with path.open("a") as file:
            file.write(json.dumps({"id": record.id, "text": record.text}) + "\n")

    path.touch()
    check_sink(
        ps.foreach(put),
        lambda: [json.loads(line) for line in path.read_text().splitlines()],
        exactly_once=False,
        at_commit=False,
        resumes=False,
    )


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        TAKEN.setdefault(self.headers["Idempotency-Key"], [json.loads(line) for line in body.splitlines()])
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


TAKEN: dict[str, list[dict[str, Any]]] = {}


def test_webhooks_with_a_receiver_that_remembers_keys_are_exactly_once() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        secret = "a-secret-of-the-test"
        sink = ps.webhook(f"http://127.0.0.1:{server.server_address[1]}/?key={secret}")
        report = check_sink(lambda: sink, lambda: [row for rows in TAKEN.values() for row in rows], secrets=[secret])
        assert not report.left_out
        server.shutdown()


# --- connectors that break a promise ----------------------------------------------------------------------------------


class Numbers(Records):
    """Numbers, as they should be; others are made of it."""

    make: Callable[..., SourceReader] | None = None

    def reader(self, partition: int, partitions: int, start_us: int) -> SourceReader:
        reader = super().reader(partition, partitions, start_us)
        return reader if self.make is None else type(self).make(reader)  # type: ignore[misc]


class Wrapped(SourceReader):
    def __init__(self, reader: SourceReader) -> None:
        self.inner = reader

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        batch = self.inner.poll(now_us, records_max)
        self.offset = self.inner.offset
        return batch

    def wake_us(self, now_us: int) -> int | None:
        return self.inner.wake_us(now_us)

    def seek(self, position: Position) -> None:
        self.inner.seek(position)
        self.offset = self.inner.offset


class SeeksTooFar(Wrapped):
    def seek(self, position: Position) -> None:
        assert isinstance(position, int)
        super().seek(position + 1)


class HasPositionsOfItsOwn(Wrapped):
    def position(self) -> Position:
        return (self.offset,)  # type: ignore[return-value]


class GivesTooMany(Wrapped):
    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        return super().poll(now_us, records_max + 1)


class GivesEmptyBatches(Wrapped):
    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        return super().poll(now_us, records_max) or SourceBatch([], 0, 0)


class NeverEnds(Wrapped):
    def wake_us(self, now_us: int) -> int | None:
        return now_us


class Shows(Records):
    def __repr__(self) -> str:
        return "Shows('password123')"


@pytest.mark.parametrize(
    ("reader", "what"),
    [
        (SeeksTooFar, "read again from every position.*missing"),
        (HasPositionsOfItsOwn, "a position is"),
        (GivesTooMany, "gave 2 records"),
        (GivesEmptyBatches, "without rows"),
        (NeverEnds, "has not ended"),
    ],
)
def test_a_source_that_breaks_a_promise_is_found(reader: type[SourceReader], what: str) -> None:
    made = ps.records(range(5), schema="n bigint")
    source = type("Broken", (Numbers,), {"make": reader, "is_split": False})(made._scripts, made.schema)
    with pytest.raises(AssertionError, match=f"(?s)^records: .*{what}"):
        check_source(source, range(5), timeout_s=0.2 if reader is NeverEnds else WAIT_S)


def test_a_source_that_shows_a_secret_or_has_other_rows_is_found() -> None:
    made = ps.records(range(5), schema="n bigint")
    with pytest.raises(AssertionError, match="a secret is shown in repr"):
        check_source(Shows(made._scripts, made.schema), secrets=["password123"])
    with pytest.raises(AssertionError, match="1 missing"):
        check_source(made, range(6))


class Keeping(ps.connectors.Sink):
    """Writes into a list, as a faulty writer does."""

    kind = "keeping"

    def __init__(self, make: str) -> None:
        self.make = make

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        return FAULTY[self.make](schema, context)


class Faulty(BufferedWriter):
    """Right in all but what a subclass does: parts are remembered by job, instance and epoch."""

    def __init__(self, schema: Schema, context: WriterContext) -> None:
        super().__init__(schema)
        self.place = context.job_id, context.instance

    def commit(self, epoch: int) -> list[Record] | None:
        for prepared, rows in self._take(epoch):
            if rows:
                PARTS.setdefault((*self.place, prepared), rows)
        return None


class AtOnce(Faulty):
    def write(self, rows: list[Record]) -> None:
        PARTS[(*self.place, -len(PARTS))] = rows


class Twice(Faulty):
    def commit(self, epoch: int) -> list[Record] | None:
        for _, rows in self._take(epoch):
            PARTS[(*self.place, -len(PARTS))] = rows
        return None


class Forgetful(Faulty):
    def snapshot(self, epoch: int) -> bytes | None:
        return None


class ByName(Faulty):
    def __init__(self, schema: Schema, context: WriterContext) -> None:
        super().__init__(schema, context)
        self.place = context.job, context.instance


class Hasty(Faulty):
    """Publishes all that is prepared, also what is not recorded."""

    def commit(self, epoch: int) -> list[Record] | None:
        return super().commit(1 << 30)


class OneOnly(Faulty):
    def __init__(self, schema: Schema, context: WriterContext) -> None:
        super().__init__(schema, context)
        self.place = context.job_id, 0


class NoColumns(Faulty):
    def write_batch(self, batch: pa.RecordBatch, schema: Schema) -> None:
        super().write_batch(batch.slice(1), schema)


class Overwrites(Faulty):
    """Keeps rows by their id, and remembers no epoch."""

    def commit(self, epoch: int) -> list[Record] | None:
        for _, rows in self._take(epoch):
            PARTS.update({(row.id,): [row] for row in rows})
        return None


FAULTY = {
    each.__name__: each for each in (Faulty, AtOnce, Twice, Forgetful, ByName, Hasty, OneOnly, NoColumns, Overwrites)
}
PARTS: dict[tuple[object, ...], list[Record]] = {}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("AtOnce", "before its epoch is committed"),
        ("Twice", "rows are there that should not be"),
        ("Forgetful", "between prepare and commit: 3 rows are not there"),
        ("ByName", "rows are not there"),
        ("Hasty", "before its epoch is committed|should not be"),
        ("OneOnly", "several instances write: 3 rows are not there"),
        ("NoColumns", "all forms write the same: 1 rows are not there"),
    ],
)
def test_a_sink_that_breaks_a_promise_is_found(name: str, what: str) -> None:
    PARTS.clear()
    with pytest.raises(AssertionError, match=f"^keeping: .*({what})"):
        check_sink(_kept(name), _parts, timeout_s=0.05)


def test_a_table_in_which_an_older_row_takes_the_place_of_a_newer_one_is_found() -> None:
    PARTS.clear()
    check_sink(_kept("Overwrites"), _parts, timeout_s=0.05, resumes=False)
    with pytest.raises(AssertionError, match="overwrites nothing: an older row"):
        check_sink(_kept("Overwrites"), _parts, timeout_s=0.05, resumes=False, keyed=True)


def test_a_sink_that_keeps_them_is_not() -> None:
    PARTS.clear()
    check_sink(_kept("Faulty"), _parts)


@pytest.mark.parametrize(
    ("name", "change"),
    [("price", repr), ("inner", str), ("at", lambda us: us // 1_000), ("user id", lambda _: "x"), ("small", round)],
)
def test_a_sink_that_shows_a_value_as_another_one_is_found(name: str, change: Callable[[Any], object]) -> None:
    PARTS.clear()
    schema, refused = supported(lambda: Keeping("Faulty"))
    assert not refused
    write = json_writer(schema)

    def shown(wrong: bool) -> list[dict[str, Any]]:
        rows = [row for rows in PARTS.values() for row in rows]
        found = [json.loads(write(row)) for row in rows]
        for each, row in zip(found, rows, strict=True):
            if wrong and row[name] is not None:
                each[name] = change(row[name])
        return found

    check_sink(_kept("Faulty"), lambda: shown(wrong=False), resumes=False)
    with pytest.raises(AssertionError, match=rf"values arrive: column '{name}' \(.*\): .* has become "):
        check_sink(_kept("Faulty"), lambda: shown(wrong=True), resumes=False)


def _parts() -> list[dict[str, Any]]:
    return [{"id": row.id, "text": row.text} for rows in PARTS.values() for row in rows]


def _kept(name: str) -> Any:
    return lambda: Keeping(name)


# --- versions ---------------------------------------------------------------------------------------------------------


def test_connectors_of_another_version_are_refused_before_anything_starts() -> None:
    made = ps.records(range(5), schema="n bigint")
    newer = type("Newer", (Numbers,), {"interface": 99})(made._scripts, made.schema)
    with pytest.raises(
        InterfaceMismatch, match=r"operation 'in': 'records' of .* version 99 .* has 1\. Upgrade penstock"
    ):
        ps.stream("in", newer).to(ps.memory()).graph()
    older = type("Older", (Keeping,), {"interface": 0})("Faulty")
    with pytest.raises(InterfaceMismatch, match=r"operation 'out': 'keeping' .* Upgrade the connector"):
        ps.stream("in", made).to(older, name="out").graph()
    table = ps.table([(1, "a")], schema="n bigint, k string", key="n")
    table.interface = 7  # type: ignore[misc]
    with pytest.raises(InterfaceMismatch, match="version 7"):
        ps.stream("in", made).lookup(table, on="n")
