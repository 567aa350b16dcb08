"""The Redis sink: an epoch's rows are written when it is committed, with a token that says so, at once.

A script of the server compares the token, writes and moves the token; nothing comes between. The rows of an epoch that
is large are written in parts, each with its number in the token.

===============================  ==================================================================================
the token of the instance        effect of a part of an epoch
===============================  ==================================================================================
before it, or none               its rows are written, and it is the token
it, or behind it                 nothing: it was written before a crash, or by a process that has taken this one's place
a command is refused             the token stays, the job fails
===============================  ==================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from penstock.connectors import ledger
from penstock.connectors.background import BackgroundWriter, Epochs
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.connectors.plain import check_json
from penstock.connectors.redis.link import Place, driver
from penstock.connectors.texts import json_writer, text_of
from penstock.errors import SinkFailed, TypeMismatch
from penstock.types import Record, Schema, TypeKind, attribute

PART_COMMANDS = 2_000
"""So many commands keep other clients of the server waiting at once."""
_SCRIPT = """
local done = redis.call('GET', KEYS[1])
local epoch, part = tonumber(ARGV[1]), tonumber(ARGV[2])
if done then
  local e, p = string.match(done, '^(%d+):(%d+)$')
  if tonumber(e) > epoch or (tonumber(e) == epoch and tonumber(p) >= part) then return 0 end
end
local at = 3
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  local c = {unpack(ARGV, at + 1, last)}
  at = last + 1
  if c[1] == 'WINDOW' then
    if redis.call('HSETNX', c[2], c[3], c[4]) == 1 then
      redis.call('HSETNX', c[2], 'windows', c[5])
      redis.call('LPUSH', redis.call('HGET', c[2], 'windows'), c[3])
    end
    redis.call('HSET', redis.call('HGET', c[2], c[3]), 'seen_count', c[6], 'time_updated', c[7])
  else
    redis.call(unpack(c))
  end
end
redis.call('SET', KEYS[1], ARGV[1] .. ':' .. ARGV[2])
return 1
"""
Command = list[str | bytes]


class Layout(Enum):
    """What a row becomes."""

    HASH = "hash"
    JSON = "json"
    STREAM = "stream"
    YAHOO = "yahoo"


class RedisSink(Sink):
    """A sink into Redis; ``ps.redis(…)`` is one at the end of a pipeline."""

    def __init__(
        self, place: Place, layout: Layout, key: tuple[str, ...], prefix: str, delete: str | None, maxlen: int | None
    ) -> None:
        self._place = place
        self._layout = layout
        self._key = key
        self._prefix = prefix
        self._delete = delete
        self._maxlen = maxlen

    @property
    def kind(self) -> str:
        return "redis"

    def check(self, schema: Schema) -> None:
        for name in self._key:
            schema.field(name)
        if self._delete is not None and schema.field(self._delete).type.kind is not TypeKind.BOOLEAN:
            ddl = schema.field(self._delete).type.ddl
            raise TypeMismatch(what=f"delete='{self._delete}' is {ddl}, not boolean.")
        check_json(schema)
        binary = [each.name for each in schema.fields if each.type.kind is TypeKind.BINARY]
        if self._layout is Layout.JSON and binary:
            raise TypeMismatch(
                what=f"column '{binary[0]}' is binary, which JSON cannot hold.", hint='Use layout="hash".'
            )
        if self._layout is Layout.YAHOO:
            rest = [each for each in schema.fields if each.name not in self._key]
            if len(self._key) != 2 or len(rest) != 1 or not rest[0].type.is_integer:
                raise TypeMismatch(
                    what=f'layout="yahoo" cannot hold ({schema.ddl}) with key {self._key}.',
                    hint="It takes a campaign and a time as key, and one whole number.",
                )
        self._place.check(SinkFailed).close()

    def state(self) -> dict[str, object]:
        return {"server": self._place.address, "what": self._place.what}

    def writes_where(self, state: dict[str, object]) -> bool:
        return (state["server"], state["what"]) == (self._place.address, self._place.what)

    def ports(self, schemas: Sequence[Schema], resumed: dict[str, object] | None) -> dict[str, Schema]:
        if resumed is not None:
            self.check(schemas[0])
        return super().ports(schemas, resumed)

    def resume(self, state: dict[str, object]) -> None:
        def refuse(cause: str, hint: str) -> SinkFailed:
            error: SinkFailed = self._place.error(SinkFailed, cause, hint)
            return error

        ledger.check_moved(str(state.get("what", self._place.what)), self._place.what, refuse)
        client, epoch = self._place.check(SinkFailed), int(str(state["epoch"]))
        tokens = _token(str(state["job_id"]), str(state["operation"]), "*")
        for token in client.scan_iter(match=tokens, count=1000):
            done = int((client.get(token) or b"0:0").partition(b":")[0])
            if done > epoch:
                raise refuse(
                    f"it has epoch {done} of this job, and the checkpoint ends with epoch {epoch}",
                    "Restore the newest checkpoint, or begin anew with another checkpoint directory.",
                )
        client.close()

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        return _RedisWriter(self._place, self._commands(schema), self._key, schema, context)

    def _commands(self, schema: Schema) -> Callable[[list[Record]], list[Command]]:
        """What turns the rows of an epoch into commands."""
        stored = Schema(tuple(each for each in schema.fields if each.name != self._delete))
        types = {each.name: each.type for each in schema.fields}
        prefix, keys, delete = self._prefix, self._key, self._delete

        def fields(row: Record) -> Command:
            found: Command = []
            for each in stored.fields:
                if (value := getattr(row, attribute(each.name))) is not None:
                    found += [each.name, text_of(value, each.type)]
            return found

        def name_of(row: Record) -> bytes:
            texts = [text_of(getattr(row, attribute(name)), types[name]) for name in keys]
            parts = [each if isinstance(each, bytes) else each.encode() for each in texts]
            if len(parts) > 1:  # ("a:b", "c") and ("a", "b:c") have names of their own
                parts = [each.replace(b"\\", b"\\\\").replace(b":", b"\\:") for each in parts]
            return b":".join([prefix.encode(), *parts] if prefix else parts)

        def stream(rows: list[Record]) -> list[Command]:
            cut: Command = ["MAXLEN", "~", str(self._maxlen)] if self._maxlen is not None else []
            return [["XADD", prefix, *cut, "*", *(fields(row) or ["", ""])] for row in rows]

        def newest(rows: list[Record]) -> dict[bytes, Record]:
            return {name_of(row): row for row in rows}

        write_json = json_writer(stored)

        def upsert(rows: list[Record]) -> list[Command]:
            commands: list[Command] = []
            for name, row in newest(rows).items():
                if delete is not None and getattr(row, attribute(delete)):
                    commands.append(["DEL", name])
                elif self._layout is Layout.JSON:
                    commands.append(["SET", name, write_json(row)])
                else:
                    empty = [each.name for each in stored.fields if getattr(row, attribute(each.name)) is None]
                    commands.append(["HSET", name, *fields(row)])
                    if empty:
                        commands.append(["HDEL", name, *empty])
            return commands

        def yahoo(rows: list[Record]) -> list[Command]:
            (count,) = (attribute(each.name) for each in schema.fields if each.name not in keys)
            now_ms = str(time.time_ns() // 1_000_000)
            commands: list[Command] = []
            for row in newest(rows).values():
                campaign = text_of(getattr(row, attribute(keys[0])), types[keys[0]])
                at = getattr(row, attribute(keys[1]))
                # The benchmark's readers look for milliseconds.
                when = str(at // 1_000) if types[keys[1]].kind is TypeKind.TIMESTAMP else str(at)
                ids = [str(uuid5(NAMESPACE_OID, f"{campaign!r}/{each}")) for each in (when, "windows")]
                commands.append(["WINDOW", campaign, when, *ids, str(getattr(row, count) or 0), now_ms])
            return commands

        return {Layout.STREAM: stream, Layout.YAHOO: yahoo}.get(self._layout, upsert)


def _token(job_id: str, operation: str, instance: object) -> str:
    return f"penstock:{job_id}:{operation}:{instance}"


class _RedisWriter(BackgroundWriter):
    def __init__(
        self,
        place: Place,
        commands: Callable[[list[Record]], list[Command]],
        key: tuple[str, ...],
        schema: Schema,
        context: WriterContext,
    ) -> None:
        super().__init__(schema, context.operation)
        self._place, self.shown, self.retry_s = place, place.shown, place.retry_s
        self._commands = commands
        self._key = key
        self._token = _token(context.job_id, context.operation, context.instance)
        self._client = place.client()
        self._script = self._client.register_script(_SCRIPT)

    def write(self, rows: list[Record]) -> None:
        for name in self._key:
            if any(getattr(row, attribute(name)) is None for row in rows):
                cause = f"a record has no value in '{name}', which is its key"
                hint = f"Leave such records out: filter(ps.col('{name}').is_not_null())."
                raise self._place.error(SinkFailed, cause, hint, self._operation)
        super().write(rows)

    def publish(self, ready: Epochs) -> None:
        redis = driver()
        for prepared, rows in ready:
            commands = self._commands(rows)
            for part, first in enumerate(range(0, len(commands), PART_COMMANDS), start=1):
                args: list[Any] = [prepared, part]
                for command in commands[first : first + PART_COMMANDS]:
                    args += [len(command), *command]
                try:
                    # What was done, and not heard of, is in the token.
                    self._place.patiently(
                        lambda args=args: self._script(keys=[self._token], args=args),  # type: ignore[misc]
                        self.pause,
                    )
                except redis.RedisError as error:
                    hint = "The job can be resumed from its checkpoint."
                    cause = self._place.shown_error(error)
                    raise self._place.error(SinkFailed, cause, hint, self._operation) from None

    def disconnect(self) -> None:
        self._client.close()
