"""A table in Redis to look things up in: a round trip for all records that have come; with a cache if wanted."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa

from penstock.connectors.plain import check_json
from penstock.connectors.redis.asking import Line, get_fields, get_many
from penstock.connectors.redis.link import Place, driver
from penstock.connectors.texts import plain_decoder, plain_reader, reader_of, text_of
from penstock.errors import BadRecord, InvalidOption, SourceFailed
from penstock.operators import Finder, LookupTable, check_keys
from penstock.operators.keys import key_values
from penstock.types import Record, Schema, TypeKind

_ASK_KEYS = 5_000
"""So many keys are asked for at once."""


class Values(Enum):
    """What is kept under a key."""

    HASH = "hash"
    JSON = "json"
    STRING = "string"


class RedisTable(LookupTable):
    """Rows in Redis; build it with :func:`redis_table`."""

    def __init__(
        self, place: Place, schema: Schema, key: str, prefix: str, layout: Values, cache: int, ttl_us: int
    ) -> None:
        self.schema = schema
        check_json(schema)
        (self.key,) = check_keys(schema, (key,), decimals=False)
        self._place = place
        self._prefix = prefix.encode()
        self._layout = layout
        self._cache = cache
        self._ttl_us = ttl_us
        self._rest = [each for each in schema.fields if each.name != key]
        if not self._rest:
            raise InvalidOption(option="schema", given=schema.ddl, allowed="a column beside the key, at least")
        if layout is Values.STRING and len(self._rest) != 1:
            raise InvalidOption(
                option="layout", given="string", allowed="with one column beside the key; else hash or json"
            )

    def describe(self) -> str:
        return self._place.shown

    def finder(self) -> Finder:
        return _Server(self).finder()

    def names(self) -> Callable[[Sequence[Any]], list[bytes]]:
        """What makes the names in Redis of the rows with some keys."""
        prefix, kind = self._prefix, self.schema.field(self.key).type
        if kind.is_integer:
            return lambda keys: [b"%b%d" % (prefix, key) for key in keys]
        if kind.kind is TypeKind.STRING:
            return lambda keys: [prefix + key.encode() for key in keys]

        def names(keys: Sequence[Any]) -> list[bytes]:
            found = [text_of(key, kind) for key in keys]
            return [prefix + (text if isinstance(text, bytes) else text.encode()) for text in found]

        return names

    def asks(self) -> Callable[[Line, Sequence[bytes]], list[Any]]:
        """What asks a server for names: one command for strings, one message of many commands for hashes."""
        if self._layout is Values.HASH:
            fields = get_fields([each.name for each in self._rest])
            return lambda line, names: line.ask(*fields(names))
        return lambda line, names: line.ask(*get_many(names))[0]  # type: ignore[return-value]  # a list of values

    def reads(self) -> Callable[[object, Any], Record | None]:
        """What makes the row of a key from an answer; None where the server has nothing."""
        at = self.schema.names.index(self.key)
        make, check = self.schema.record_type, self.schema.check
        texts = [reader_of(each.type) for each in self._rest]
        binary = [each.type.kind is TypeKind.BINARY for each in self._rest]
        plain = [(each.name, plain_reader(each.type)) for each in self._rest]
        decode = plain_decoder(each.type for each in self._rest)

        def values(key: object, found: list[object]) -> Record:
            return check(make(*found[:at], key, *found[at:]))

        def of_texts(key: object, answers: Iterable[bytes | None]) -> Record | None:
            parts = list(answers)
            if all(each is None for each in parts):
                return None
            return values(
                key,
                [
                    None if data is None else data if raw else read(data.decode())
                    for read, raw, data in zip(texts, binary, parts, strict=True)
                ],
            )

        def of_string(key: object, answer: bytes | None) -> Record | None:
            return None if answer is None else values(key, [answer if binary[0] else texts[0](answer.decode())])

        def of_json(key: object, answer: bytes | None) -> Record | None:
            if answer is None:
                return None
            try:
                found = decode(answer)
            except msgspec.DecodeError as error:
                raise BadRecord(f"what Redis has for {key!r} is not JSON: {error}.") from None
            if not isinstance(found, dict):
                raise BadRecord(f"what Redis has for {key!r} is not a JSON object.")
            return values(key, [None if found.get(n) is None else read(found[n]) for n, read in plain])

        return {Values.STRING: of_string, Values.JSON: of_json}.get(self._layout, of_texts)

    def cache(self) -> Cache | None:
        """The cache, if one is wanted."""
        return Cache(self._cache, self._ttl_us / 1e6) if self._cache else None

    @property
    def place(self) -> Place:
        """Where it is."""
        return self._place


class Cache:
    """Answers that are not too old, those of absent keys too; the one that was not used for longest goes first."""

    def __init__(self, rows_max: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rows_max = rows_max
        self._ttl_s = ttl_s
        self._clock = clock
        self._held: OrderedDict[object, tuple[float, Record | None]] = OrderedDict()

    def split(self, keys: Iterable[object]) -> tuple[dict[object, Record | None], list[object]]:
        """Return what is known of some keys, and the others."""
        now_s, known, unknown = self._clock(), dict[object, Record | None](), list[object]()
        for key in keys:
            held = self._held.get(key)
            if held is None or now_s >= held[0]:
                unknown.append(key)
            else:
                self._held.move_to_end(key)
                known[key] = held[1]
        return known, unknown

    def put(self, found: dict[object, Record | None]) -> None:
        """Keep answers."""
        until_s = self._clock() + self._ttl_s
        for key, row in found.items():
            self._held[key] = until_s, row
            self._held.move_to_end(key)
        while len(self._held) > self._rows_max:
            self._held.popitem(last=False)

    def __len__(self) -> int:
        return len(self._held)


class _Server:
    """A table at work; it opens its connection when it is asked for the first time."""

    def __init__(self, table: RedisTable) -> None:
        self._table = table
        self._ask = table.asks()
        self._read = table.reads()
        self._cache = table.cache()
        self._names = table.names()
        self._line = Line(table.place)
        self._waited_ns = 0

    def finder(self) -> Finder:
        return Finder(self.get, self.columns, self.many, waited_ns=self.waited_ns)

    def waited_ns(self) -> int:
        """Take how long the server was waited for."""
        waited_ns, self._waited_ns = self._waited_ns, 0
        return waited_ns

    def get(self, key: object) -> Record | None:
        """The row of a key: one round trip, unless it is in the cache."""
        return None if key is None else self._rows([key])[key]

    def many(self, keys: Sequence[object]) -> Callable[[object], Record | None]:
        """Ask for the rows of several records in one round trip; a wrong one is told with its record."""
        wanted = [key for key in dict.fromkeys(keys) if key is not None]
        if not wanted:
            return self.get  # which finds nothing for nulls, and asks nobody
        try:
            return self._rows(wanted).get
        except SourceFailed as error:
            failure = error  # nobody answers: no record need wait once more

            def fail(_: object) -> Record | None:
                raise failure

            return fail
        except BadRecord:
            return self.get  # one by one

    def columns(self, keys: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """The rows of some keys: one round trip for those that are not in the cache."""
        coded = keys.dictionary_encode()
        distinct = key_values(coded.dictionary)
        found = self._rows([key for key in distinct if key is not None])
        rows: list[Record] = []
        places: list[int | None] = []
        for key in distinct:
            row = None if key is None else found[key]
            places.append(None if row is None else len(rows))
            rows += [] if row is None else [row]
        return self._table.schema.to_batch(rows), pa.array(places, pa.int32()).take(coded.indices)

    def _rows(self, keys: Sequence[object]) -> dict[object, Record | None]:
        if self._cache is None:
            return self._asked(keys)
        known, unknown = self._cache.split(keys)
        if unknown:
            asked = self._asked(unknown)
            self._cache.put(asked)
            known.update(asked)
        return known

    def _asked(self, keys: Sequence[object]) -> dict[object, Record | None]:
        place, found = self._table.place, dict[object, Record | None]()
        redis = driver()
        for first in range(0, len(keys), _ASK_KEYS):
            part = keys[first : first + _ASK_KEYS]
            names, began_ns = self._names(part), time.perf_counter_ns()
            try:
                answers = place.patiently(lambda names=names: self._ask(self._line, names))  # type: ignore[misc]
            except redis.RedisError as error:
                raise place.error(SourceFailed, place.shown_error(error)) from None
            finally:
                self._waited_ns += time.perf_counter_ns() - began_ns
            found.update(zip(part, map(self._read, part, answers), strict=True))
        return found
