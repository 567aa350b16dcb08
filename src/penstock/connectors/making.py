"""How a generated record comes from its offset and its scheduled time, as rows and as columns; the generator asks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.connectors.draws import Draw, FieldSpec, Times, Words, random_words, stream_keys
from penstock.connectors.rendering import Piece, Renderer, byte_strings
from penstock.types import Record, Schema


@dataclass
class Context:
    """What a user's generating function is given.

    Attributes
    ----------
    offset : int
        Global offset of the record, from 0.
    time_us : int
        When the record is scheduled, in microseconds since the epoch.
    seed : int
        The generator's seed.
    """

    offset: int
    time_us: int
    seed: int

    @cached_property
    def random(self) -> random.Random:
        """A random generator of this record's own."""
        return random.Random(self.seed << 64 | self.offset)


UserFunction = Callable[[Context], Any]
MakeRows = Callable[[Words, Times], list[Record]]
MakeColumns = Callable[[Words, Times], list[pa.Array]]


class Maker:
    """Makes records from fields or with a user's function; the same ones as rows and as columns.

    Parameters
    ----------
    make : dict or callable
        Fields by name, or the function.
    schema : Schema
        Schema of the records.
    as_json : bool
        Whether a record is a JSON text.
    seed : int
        Seed of all that is random.
    """

    def __init__(self, make: dict[str, FieldSpec] | UserFunction, schema: Schema, *, as_json: bool, seed: int) -> None:
        self._make = make
        self._schema = schema
        self._as_json = as_json
        self._seed = seed

    @property
    def is_function(self) -> bool:
        """Whether a user's function is called for every record."""
        return not isinstance(self._make, dict)

    @property
    def words(self) -> int:
        """How many random words a record takes."""
        return sum(spec.words for spec in self._make.values()) if isinstance(self._make, dict) else 0

    def columns(self) -> MakeColumns:
        """Return the function that makes records as columns from their offsets and scheduled times."""
        if not isinstance(self._make, dict):
            make, to_batch = self._function(self._make), self._schema.to_batch
            return lambda offsets, times_us: to_batch(make(offsets, times_us)).columns
        if self._as_json:
            texts = self._texts()
            return lambda offsets, times_us: [texts(offsets, times_us)]
        draw = self._draws()
        columns = [spec.arrow() for spec in self._make.values()]

        def drawn(offsets: Words, times_us: Times) -> list[pa.Array]:
            return [column(each) for column, each in zip(columns, draw(offsets, times_us), strict=True)]

        return drawn

    def _draws(self) -> Callable[[Words, Times], list[Draw]]:
        """Return the function that draws the random bits of every field."""
        assert isinstance(self._make, dict)
        keys: list[int] = []
        rows: list[slice] = []
        for name, spec in self._make.items():
            rows.append(slice(len(keys), len(keys) + spec.words))
            keys += stream_keys(self._seed, name, spec.words)
        all_keys = np.array(keys, dtype=np.uint64)

        def draw(offsets: Words, times_us: Times) -> list[Draw]:
            words = random_words(all_keys, offsets)
            return [Draw(offsets, times_us, words[own]) for own in rows]

        return draw

    def _texts(self) -> Callable[[Words, Times], pa.Array]:
        """Return the function that makes records as JSON."""
        assert isinstance(self._make, dict)
        draw = self._draws()
        pieces: list[tuple[int, Piece]] = []
        for i, (name, spec) in enumerate(self._make.items()):
            pieces.append((i, (b"," if i else b"{") + msgspec.json.encode(name) + b":"))
            pieces += [(i, piece) for piece in spec.json()]
        render = Renderer([*pieces, (0, b"}")], pa.binary())
        return lambda offsets, times_us: render(draw(offsets, times_us), offsets.size)

    def rows(self) -> MakeRows:
        """Return the function that makes records from their offsets and scheduled times."""
        if not isinstance(self._make, dict):
            return self._function(self._make)
        record_type = self._schema.record_type
        if self._as_json:
            texts = self._texts()
            return lambda offsets, times_us: list(map(record_type, byte_strings(texts(offsets, times_us))))
        draw = self._draws()
        columns = [spec.values() for spec in self._make.values()]

        def make(offsets: Words, times_us: Times) -> list[Record]:
            draws = draw(offsets, times_us)
            return list(map(record_type, *(column(each) for column, each in zip(columns, draws, strict=True))))

        return make

    def _function(self, function: UserFunction) -> MakeRows:
        seed, schema = self._seed, self._schema
        encode = _json_bytes if self._as_json else _same

        def make(offsets: Words, times_us: Times) -> list[Record]:
            return [
                schema.coerce(encode(function(Context(offset, time_us, seed))))
                for offset, time_us in zip(offsets.tolist(), times_us.tolist(), strict=True)
            ]

        return make


def _json_bytes(value: object) -> bytes:
    """Encode a value; bytes are taken as they are, so that malformed input can be generated too."""
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


def _same(value: object) -> object:
    return value
