"""Reads the changes of a table from a replication slot, over the protocol that standbys use; `Changes` makes it.

==========================================  ===========================================================================
event                                       effect
==========================================  ===========================================================================
first poll, no position                     the publication is made, unless it is there, then the slot; with a
                                            snapshot the slot is always made anew, and the table is read as it was then
first poll, a position                      the log is read from there on; the transaction that was begun is skipped as
                                            far as it was given out
first poll, a position in the snapshot      the rows behind that key are read as they are now: what has changed since
                                            the slot was made comes again, as a change
a snapshot ends                             the log is read from where the slot is
a transaction's commit                      the position is behind it
a word of the server that nothing came      the position moves, so that the server can let go of its log
the position is committed                   the server is told, and lets go of what lies before it
the connection is lost                      it is opened again, at the position of what was given out
the slot is held by a process of this run   that process was replaced: its connection is ended
the slot is held by anybody else            waited for, then refused
==========================================  ===========================================================================
"""

from __future__ import annotations

import time
from collections import deque
from struct import pack, unpack_from
from typing import Any

import msgspec

from penstock.connectors.base import OnceReader, Position, SourceBatch
from penstock.connectors.postgres import pgoutput as p
from penstock.connectors.postgres.link import PgTable, Place, driver, quoted
from penstock.errors import BadRecord
from penstock.types import Record, Schema

_POLL_US = 2_000
_READY_MAX = 10_000
_CHUNK_ROWS = 5_000
_STATUS_US = 5_000_000
_RETRY_US = 100_000
_RETRY_MAX_US = 5_000_000
IN_USE_US = 15_000_000
"""How long a slot that somebody else reads is waited for."""
_ADVANCE_S = 5.0
_EPOCH_US = 946_684_800_000_000


class _Position(msgspec.Struct, array_like=True):
    records: int
    lsn: int
    """All transactions that end before it were given out; in a snapshot, where the log begins after it."""
    index: int
    """So many records of the transaction after it were given out."""
    key: list[str] | None = None
    """In a snapshot: the key of the last row that was given out; empty before the first."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Position).decode


def lsn_in(position: Position) -> int:
    """Where in the log a position is."""
    assert isinstance(position, bytes)
    return _decode(position).lsn


class ChangesReader(OnceReader):
    """Reads the only partition of a table's changes."""

    def __init__(
        self,
        place: Place,
        table: PgTable,
        names: tuple[str, ...],
        schema: Schema,
        slot: str,
        run: str,
        snapshot: bool,
        patience_us: int,
    ) -> None:
        self._place = place
        self._table = table
        self._names = names
        self._read = {name: table.columns[name].made_of.reader() for name in names}
        self._make = schema.record_type
        self._slot = slot
        self._application = f"penstock {slot} {run}"
        self._wants_snapshot = snapshot
        self._patience_us = patience_us
        self._at: _Position | None = None
        """Behind what was given out; None before anything was looked at."""
        self._log: Any = None
        """The connection that the log comes over."""
        self._query: Any = None
        self._closed = False
        self._retry_us = _RETRY_US
        self._next_us = 0
        self._lost_us: int | None = None
        self._held_us: int | None = None
        self._told_us = 0
        self._confirmed = 0
        self._rest()

    def _rest(self) -> None:
        """Forget what was read and not given out."""
        self._ready: deque[tuple[Record, _Position]] = deque()
        self._reached: _Position | None = None
        """Behind what was read."""
        self._skip = 0
        self._begun = p.Begin(0, 0)
        self._relation: tuple[int, list[tuple[int, Any, str]], list[int]] | None = None

    # --- the engine's side --------------------------------------------------------------------------------------------

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        if not self._closed and now_us >= self._next_us and len(self._ready) < records_max:
            self._next_us = now_us + _POLL_US
            self._fill(now_us)
        if not self._ready:
            return None
        at, rows = self.offset, list[Record]()
        while self._ready and len(rows) < records_max:
            row, self._at = self._ready.popleft()
            rows.append(row)
        self.offset += len(rows)
        return SourceBatch(rows, now_us, at)

    def wake_us(self, now_us: int) -> int | None:
        return now_us if self._ready else self._next_us

    def backlog_records(self, now_us: int) -> int:
        del now_us
        return len(self._ready)

    def position(self) -> Position:
        self._settle()
        at = self._at or _Position(0, 0, 0, [] if self._wants_snapshot else None)
        return _encode(_Position(self.offset, at.lsn, at.index, at.key))

    def _settle(self) -> None:
        """Where all that was read was given out, the position is behind it; while records are skipped it is not."""
        at, reached = self._at, self._reached
        if self._ready or reached is None or at is None:
            return
        if at.key is not None or (reached.lsn, reached.index) > (at.lsn, at.index):
            self._at = reached

    def seek(self, position: Position) -> None:
        assert isinstance(position, bytes)
        at = _decode(position)
        self._drop()
        self._rest()
        self.offset = at.records
        # Without a place in the log nothing was begun.
        self._at = at if at.lsn else None

    def committed(self, position: Position) -> None:
        lsn = lsn_in(position)
        if lsn <= self._confirmed:
            return
        self._confirmed = lsn
        psycopg = driver()
        try:
            if self._log is not None:
                self._tell()
            elif self._closed:
                self._advance(lsn)
        except psycopg.Error:
            self._drop()  # a later commit tells it; at the end the slot stays behind, and its changes are skipped

    def close(self) -> None:
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        for each in (self._log, self._query):
            if each is not None:
                each.close()
        self._log = self._query = None

    # --- the server's side --------------------------------------------------------------------------------------------

    def _fill(self, now_us: int) -> None:
        psycopg = driver()
        try:
            if self._log is None and self._query is None:
                self._open()
                self._lost_us = self._held_us = None
            if self._query is not None:
                self._read_chunk()
            else:
                self._read_log(now_us)
            self._retry_us = _RETRY_US
        except psycopg.errors.ObjectInUse as error:
            self._drop()
            self._held_us = self._held_us or now_us
            self._next_us = now_us + _RETRY_US
            if now_us - self._held_us > IN_USE_US:
                raise self._place.source_error(
                    self._place.shown_error(error), "Another job reads it. Give slot= a name of its own to each."
                ) from None
        except psycopg.OperationalError as error:
            self._drop()
            self._lost_us = self._lost_us or now_us
            self._next_us, self._retry_us = now_us + self._retry_us, min(2 * self._retry_us, _RETRY_MAX_US)
            if now_us - self._lost_us > self._patience_us:
                raise self._place.source_error(self._place.shown_error(error), "Is the server up?") from None
        except psycopg.Error as error:
            raise self._place.source_error(self._place.shown_error(error)) from None

    def _open(self) -> None:
        """Find out where to go on, and open what is read from there."""
        from penstock.connectors.postgres.changes import check_slot

        query = self._query = self._place.connect()
        self._free_slot(query)
        # What was read and not given out is read again.
        at = self._at
        self._rest()
        if at is None:
            at = self._begin(query)
        else:
            check_slot(query, self._place, self._slot, at.lsn)
        self._at = self._reached = at
        if at.key is None:
            self._start_log()

    def _free_slot(self, query: Any) -> None:
        """End the connection of a process that this one has taken the place of: it may be standing still."""
        query.execute(
            "SELECT pg_terminate_backend(a.pid, 1000) FROM pg_stat_activity a JOIN pg_replication_slots s "
            "ON s.active_pid = a.pid WHERE s.slot_name = %s AND a.application_name = %s",
            (self._slot, self._application),
        )

    def _begin(self, query: Any) -> _Position:
        """Make what is not there: the publication first, because a slot knows only those that were there before it."""
        psycopg = driver()
        if query.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (self._slot,)).fetchone() is None:
            name = psycopg.sql.Identifier(self._slot)
            target = psycopg.sql.Identifier(self._table.schema, self._table.name)
            query.execute(
                psycopg.sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root)").format(
                    name, target
                )
            )
        find = "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s"
        found = query.execute(find, (self._slot,)).fetchone()
        if not self._wants_snapshot:
            if found is None:
                query.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._slot,))
                found = query.execute(find, (self._slot,)).fetchone()
            return _Position(0, found[0], 0)
        if found is not None:
            # The table has all that it holds, and only a slot that is made shows the table as of its beginning.
            query.execute("SELECT pg_drop_replication_slot(%s)", (self._slot,))
        with self._place.connect(replication="database") as maker:
            made = self._command(maker, f'CREATE_REPLICATION_SLOT "{self._slot}" LOGICAL pgoutput EXPORT_SNAPSHOT')
            query.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            query.execute(f"SET TRANSACTION SNAPSHOT '{made.get_value(0, 2).decode()}'")
        high, low = made.get_value(0, 1).decode().split("/")
        return _Position(0, (int(high, 16) << 32) + int(low, 16), 0, [])

    @staticmethod
    def _command(connection: Any, command: str) -> Any:
        """Give a command of the replication protocol, which the driver does not know."""
        psycopg = driver()
        result = connection.pgconn.exec_(command.encode())
        if result.status not in (psycopg.pq.ExecStatus.COPY_BOTH, psycopg.pq.ExecStatus.TUPLES_OK):
            raise psycopg.errors.error_from_result(result)
        return result

    def _start_log(self) -> None:
        assert self._at is not None
        psycopg, at = driver(), self._at
        if self._query is not None:
            self._query.close()
            self._query = None
        log = self._place.connect(replication="database", application_name=self._application)
        start = (
            f'START_REPLICATION SLOT "{self._slot}" LOGICAL {at.lsn >> 32:X}/{at.lsn & 0xFFFFFFFF:X} '
            f"(proto_version '1', publication_names '\"{self._slot}\"', binary 'true')"
        )
        try:
            self._command(log, start)
        except psycopg.Error:
            log.close()
            raise
        log.pgconn.nonblocking = 1
        self._log, self._skip = log, at.index
        self._reached = _Position(0, at.lsn, 0)

    def _read_chunk(self) -> None:
        """Read the next rows of the snapshot, by key."""
        assert self._reached is not None
        if len(self._ready) >= _CHUNK_ROWS:
            return
        last, primary = self._reached.key, self._table.primary
        types = [self._table.columns[name].type for name in primary]
        keys = ", ".join(f't."{name}"' for name in primary)
        texts = ", ".join(f't."{name}"::text' for name in primary)
        marks = ", ".join(f"%s::{each}" for each in types)
        names = ", ".join(f't."{name}"' for name in self._names)
        where = f"WHERE ({keys}) > ({marks}) " if last else ""
        target = f'"{self._table.schema}"."{self._table.name}"'
        statement = f"SELECT {names}, {texts} FROM {target} t {where}ORDER BY {keys} LIMIT {_CHUNK_ROWS}"
        cursor = self._query.cursor(binary=True)
        cursor.execute(statement, last or None)
        result, columns = cursor.pgresult, len(self._names)
        decoders = [self._read[name] for name in self._names]
        lsn, now_us = self._reached.lsn, time.time_ns() // 1000
        for at in range(result.ntuples):
            raw = [result.get_value(at, column) for column in range(columns + len(primary))]
            values = [
                self._decoded(name, decode, each)
                for name, decode, each in zip(self._names, decoders, raw, strict=False)
            ]
            key = [each.decode() for each in raw[columns:]]
            self._reached = _Position(0, lsn, 0, key)
            self._ready.append((self._make(*values, "snapshot", lsn, now_us), self._reached))
        if result.ntuples < _CHUNK_ROWS:
            self._reached = done = _Position(0, lsn, 0)
            if self._ready:
                self._ready[-1] = self._ready[-1][0], done
            self._at, before = done, self._at
            self._start_log()
            self._at = before if self._ready else done

    def _decoded(self, name: str, decode: Any, data: bytes | None) -> Any:
        try:
            return None if data is None else decode(data)
        except BadRecord as error:
            raise self._place.source_error(f"column '{name}': {error.what.rstrip('.')}") from None

    def _read_log(self, now_us: int) -> None:
        log = self._log.pgconn
        log.consume_input()
        while len(self._ready) < _READY_MAX:
            size, data = log.get_copy_data(1)
            if size == 0:
                break
            if size < 0:
                raise driver().OperationalError(log.get_error_message() or "the server has ended the stream")
            data = bytes(data)
            if data[:1] == b"w":
                self._take(p.decode(data[25:]))
            elif data[:1] == b"k":
                self._heard(unpack_from(">q", data, 1)[0])
                if data[17]:
                    self._tell()
        if now_us - self._told_us > _STATUS_US:
            self._told_us = now_us
            self._tell()

    def _heard(self, lsn: int) -> None:
        """The server has sent all that lies before ``lsn``; between transactions, that is a place to go on from."""
        assert self._reached is not None
        if not self._begun.lsn and lsn > self._reached.lsn and not self._ready:
            self._reached = _Position(0, lsn, 0)

    def _tell(self) -> None:
        """Tell the server what is committed: it lets go of what lies before, and knows that somebody is there."""
        now_us = time.time_ns() // 1000 - _EPOCH_US
        self._log.pgconn.put_copy_data(
            b"r" + pack(">qqqqb", self._confirmed, self._confirmed, self._confirmed, now_us, 0)
        )
        self._log.pgconn.flush()

    def _advance(self, lsn: int) -> None:
        """Move the slot without reading it: the reader is closed."""
        psycopg, deadline_s = driver(), time.monotonic() + _ADVANCE_S
        with self._place.connect() as connection:
            while True:
                try:
                    connection.execute(
                        "SELECT pg_replication_slot_advance(slot_name, '0/0'::pg_lsn + %s) FROM pg_replication_slots "
                        "WHERE slot_name = %s AND confirmed_flush_lsn < '0/0'::pg_lsn + %s",
                        (lsn, self._slot, lsn),
                    )
                except psycopg.errors.ObjectInUse:
                    # The server has not noticed yet that the other connection is closed.
                    if time.monotonic() > deadline_s:
                        raise
                    time.sleep(0.02)
                else:
                    return

    # --- changes ------------------------------------------------------------------------------------------------------

    def _take(self, message: p.Message) -> None:
        reached = self._reached
        assert reached is not None
        match message:
            case p.Begin():
                self._begun = message
            case p.Commit(end_lsn=end_lsn):
                done = _Position(0, end_lsn, 0)
                if self._ready and self._ready[-1][1] is reached:
                    self._ready[-1] = self._ready[-1][0], done
                elif not self._ready:
                    self._at = done
                self._reached, self._begun, self._skip = done, p.Begin(0, 0), 0
            case p.Relation():
                self._relate(message)
            case p.Change():
                if self._relation is not None and message.oid == self._relation[0]:
                    self._change(message)
            case p.Truncate(oids=oids):
                if self._relation is not None and self._relation[0] in oids:
                    self._give([None] * len(self._names), "truncate")
            case None:
                pass

    def _relate(self, relation: p.Relation) -> None:
        if (relation.schema, relation.name) != (self._table.schema, self._table.name):
            return
        at = {name: (index, oid) for index, (name, oid, _) in enumerate(relation.columns)}
        columns = []
        for name in self._names:
            index, oid = at.get(name, (-1, -1))
            if oid != self._table.columns[name].oid:
                what = "is gone" if oid < 0 else "has another type"
                raise self._place.source_error(
                    f"column '{name}' {what} since the job has started", "Start it again with the table as it is."
                )
            columns.append((index, self._read[name], name))
        # Where the log has whole rows, the primary key still says which row it is.
        is_whole = bool(self._table.primary) and set(self._table.primary) < set(self._table.identity)
        named = self._table.primary if is_whole else self._table.identity
        self._relation = relation.oid, columns, [at[name][0] for name in named if name in at]

    def _change(self, change: p.Change) -> None:
        old, new = change.old, change.new
        if new is None:
            assert old is not None
            self._give(self._values(old, None), "delete")
            return
        if old is not None and any(old[i] != new[i] for i in self._keys() if new[i] is not p.UNCHANGED):
            # One row is gone, and another one is there.
            self._give(self._values(old, None), "delete")
            self._give(self._values(new, old), "insert")
        else:
            self._give(self._values(new, old), change.op)

    def _keys(self) -> list[int]:
        """Where the columns that name a row are in a row of the log."""
        assert self._relation is not None
        return self._relation[2]

    def _values(self, new: p.Tuple, old: p.Tuple | None) -> list[Any]:
        assert self._relation is not None
        values: list[Any] = []
        for index, decode, name in self._relation[1]:
            data: Any = new[index]
            if data is p.UNCHANGED:
                data = old[index] if old is not None else p.UNCHANGED
                if data is p.UNCHANGED or data is None:
                    raise self._place.source_error(
                        f"an update left the large value of column '{name}' as it was, and the log does not repeat it",
                        f"ALTER TABLE {quoted(self._place.table)} REPLICA IDENTITY FULL; or leave the column out.",
                    )
            values.append(self._decoded(name, decode, data))
        return values

    def _give(self, values: list[Any], op: str) -> None:
        assert self._reached is not None
        before = self._reached
        self._reached = _Position(0, before.lsn, before.index + 1)
        if self._skip:
            self._skip -= 1
            return
        row = self._make(*values, op, self._begun.lsn, self._begun.time_us)
        self._ready.append((row, self._reached))
