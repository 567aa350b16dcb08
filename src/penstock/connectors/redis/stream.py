"""A stream of Redis as a source: entries by their ids, which are the positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.connectors.base import OnceReader, Position, Source, SourceBatch
from penstock.connectors.plain import check_json
from penstock.connectors.redis.link import Place, driver
from penstock.connectors.texts import reader_of
from penstock.errors import BadRecord, SourceFailed
from penstock.types import Record, Schema, TypeKind

_POLL_US = 2_000
_RETRY_US = 500_000
_READ_MAX = 5_000


class _Position(msgspec.Struct, array_like=True):
    records: int
    id: str
    cut: int
    """How many entries had been cut off when the first one was read."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Position).decode
_BEGINNING = "0-0"


class RedisStream(Source):
    """Entries of a stream; ``ps.redis(url, stream=…)`` is this at the beginning of a pipeline."""

    def __init__(self, place: Place, stream: str, schema: Schema) -> None:
        self._place = place
        self._stream = stream
        self._schema = schema

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def kind(self) -> str:
        return "redis"

    def check(self) -> None:
        check_json(self._schema)
        client = self._place.check(SourceFailed)
        found = client.type(self._stream)
        client.close()
        if found not in (b"stream", b"none"):
            raise self._place.error(
                SourceFailed, f"'{self._stream}' is a {found.decode()}, no stream", "Check its name."
            )

    def resumed(self, positions: Mapping[int, Position]) -> RedisStream:
        client = self._place.check(SourceFailed)
        for position in positions.values():
            assert isinstance(position, bytes)
            check_kept(client, self._place, self._stream, _decode(position))
        client.close()
        return self

    def partitions(self, parallelism: int) -> int:
        del parallelism
        return 1

    def reader(self, partition: int, partitions: int, start_us: int) -> _StreamReader:
        del partition, partitions, start_us
        return _StreamReader(self._place, self._stream, self._schema)


def check_kept(client: Any, place: Place, stream: str, at: _Position) -> int:
    """Refuse a position behind which entries were cut off, or that the stream has not reached; count those cut off."""
    anew = "Begin anew with another checkpoint directory."
    if not client.exists(stream):
        if at.id != _BEGINNING:
            raise place.error(SourceFailed, f"stream '{stream}' is gone", anew)
        return 0
    info = client.xinfo_stream(stream)
    cut = int(info.get("entries-added", info["length"])) - int(info["length"])
    if at.id == _BEGINNING:
        return cut
    if cut > at.cut + at.records:  # more than were read
        raise place.error(SourceFailed, f"stream '{stream}' was cut behind the entry that was read last", anew)
    if _number(at.id) > _number(info["last-generated-id"]):
        raise place.error(SourceFailed, f"stream '{stream}' is another one: it ends before what was read", anew)
    return at.cut


def _number(entry: str | bytes) -> tuple[int, int]:
    text = entry.decode() if isinstance(entry, bytes) else entry
    time_ms, _, rest = text.partition("-")
    return int(time_ms), int(rest or 0)


class _StreamReader(OnceReader):
    def __init__(self, place: Place, stream: str, schema: Schema) -> None:
        self._place = place
        self._stream = stream
        self._make, self._check = schema.record_type, schema.check
        self._fields = [(each.name.encode(), reader_of(each.type)) for each in schema.fields]
        self._binary = [each.type.kind is TypeKind.BINARY for each in schema.fields]
        self._client: Any = None
        self._id = _BEGINNING
        self._cut = 0
        self._next_us = 0
        self._lost_us: int | None = None

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        if now_us < self._next_us:
            return None
        redis = driver()
        self._next_us = now_us + _POLL_US
        try:
            if self._client is None:
                self._client = self._place.client()
                at = _Position(self.offset, self._id, self._cut)
                self._cut = check_kept(self._client, self._place, self._stream, at)
            found = self._client.xread({self._stream: self._id}, count=min(records_max, _READ_MAX))
            self._lost_us = None
        except (redis.ConnectionError, redis.TimeoutError) as error:
            self.close()
            self._lost_us, self._next_us = self._lost_us or now_us, now_us + _RETRY_US
            if now_us - self._lost_us > self._place.retry_s * 1e6:
                raise self._place.error(SourceFailed, self._place.shown_error(error)) from None
            return None
        except redis.RedisError as error:
            raise self._place.error(SourceFailed, self._place.shown_error(error)) from None
        if not found:
            return None
        entries = next(iter(found.values()))[0] if isinstance(found, dict) else found[0][1]
        first, rows = self.offset, [self._row(entry, fields) for entry, fields in entries]
        self._id = entries[-1][0].decode()
        self.offset += len(rows)
        self._next_us = now_us
        return SourceBatch(rows, now_us, first)

    def _row(self, entry: bytes, fields: Mapping[bytes, bytes]) -> Record:
        values: list[object] = []
        try:
            for (name, read), raw in zip(self._fields, self._binary, strict=True):
                data = fields.get(name)
                values.append(None if data is None else data if raw else read(data.decode()))
            return self._check(self._make(*values))
        except (BadRecord, UnicodeDecodeError) as error:
            cause = f"entry {entry.decode()} of '{self._stream}': {getattr(error, 'what', error)}".rstrip(".")
            hint = "Read the field as string, and parse it in the pipeline, where bad records can be kept apart."
            raise self._place.error(SourceFailed, cause, hint) from None

    def wake_us(self, now_us: int) -> int | None:
        return self._next_us

    def position(self) -> Position:
        return _encode(_Position(self.offset, self._id, self._cut))

    def seek(self, position: Position) -> None:
        assert isinstance(position, bytes)
        at = _decode(position)
        self.offset, self._id, self._cut = at.records, at.id, at.cut
        self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
