"""The deterministic generator: any record can be made again from the seed, its offset and the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

import numpy as np
import pyarrow as pa

from penstock.checks import OneOf, Whole
from penstock.connectors.base import Source
from penstock.connectors.draws import FieldSpec, Times, Words
from penstock.connectors.generator_reader import Chunks, Columns, GeneratorReader
from penstock.connectors.making import Maker, UserFunction
from penstock.connectors.rates import RateSchedule, as_schedule
from penstock.connectors.specs import Constant
from penstock.errors import InvalidOption
from penstock.types import STRING, Field, Record, Schema

# A chunk is made within one poll, which must not take more than a few milliseconds: wide records and users' functions
# make it smaller.
_CHUNK_RECORDS_MAX = 4096
_CHUNK_RECORDS_CALLABLE = 16
_CHUNK_WORDS_MAX = 32 * 1024
_COLUMN_WORDS_MAX = 4 * 1024 * 1024
_PARTITIONS_MAX = 10_000
_SEED_MAX = (1 << 63) - 1

_JSON_SCHEMA = Schema.parse("value binary not null")
_TEXT_SCHEMA = Schema.parse("value string not null")


class Format(Enum):
    """How a generated record is presented."""

    JSON = "json"
    COLUMNS = "columns"
    TEXT = "text"


Offsets = Callable[[int, int, int], tuple[Words, Times]]
"""Global offsets of a chunk (first, count, stride) and when they are scheduled, since the epoch."""


class Generator(Source):
    """A source of generated records; build it with :func:`generator`."""

    def __init__(
        self,
        make: dict[str, FieldSpec] | UserFunction,
        schedule: RateSchedule | None,
        schema: Schema,
        form: Format,
        *,
        seed: int,
        total: int | None,
        partitions: int | None,
    ) -> None:
        self._maker = Maker(make, schema, as_json=form is Format.JSON, seed=seed)
        self._schedule = schedule
        self._schema = schema
        self._total = total
        self._partitions = partitions

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def kind(self) -> str:
        return "generator"

    @property
    def is_split(self) -> bool:
        return True

    @property
    def is_bounded(self) -> bool:
        return self._total is not None

    @property
    def total(self) -> int | None:
        """How many records there are in all; None where there is no end."""
        return self._total

    @property
    def schedule(self) -> RateSchedule | None:
        """When the records are due; None where they are as soon as they are read."""
        return self._schedule

    def up_to(self, where: object) -> Generator | None:
        return self if where is None and self._total is not None else None

    def partitions(self, parallelism: int) -> int:
        return self._partitions or parallelism

    def reader(self, partition: int, partitions: int, start_us: int) -> GeneratorReader:
        return GeneratorReader(
            self._chunks(start_us),
            self._columns(start_us),
            self._schedule,
            partition=partition,
            partitions=partitions,
            start_us=start_us,
            total=self._total,
            chunk_records_max=self._chunk_records_max,
        )

    def records(self, first: int, count: int, start_us: int) -> list[Record]:
        """Make the records from a global offset on, as a job that started at ``start_us`` reads them."""
        if self._total is not None:
            count = min(count, self._total - first)
        chunks, step = self._chunks(start_us), self._chunk_records_max
        rows: list[Record] = []
        for at in range(first, first + count, step):
            rows += chunks(at, min(step, first + count - at), 1)[0]
        return rows

    @property
    def _chunk_records_max(self) -> int:
        if self._maker.is_function:
            return _CHUNK_RECORDS_CALLABLE
        return max(min(_CHUNK_WORDS_MAX // max(self._maker.words, 1), _CHUNK_RECORDS_MAX), 1)

    def _offsets(self, start_us: int) -> Offsets:
        schedule = self._schedule

        def offsets(first: int, count: int, stride: int) -> tuple[Words, Times]:
            numbers = np.arange(first, first + count * stride, stride, dtype=np.uint64)
            if schedule is None:
                # A time that depends on the reading could not be made again: count a record per microsecond.
                return numbers, numbers.astype(np.int64) + start_us
            return numbers, schedule.times_us(first, count, stride) + start_us

        return offsets

    def _chunks(self, start_us: int) -> Chunks:
        make, offsets = self._maker.rows(), self._offsets(start_us)

        def chunk(first: int, count: int, stride: int) -> tuple[list[Record], list[int]]:
            numbers, times_us = offsets(first, count, stride)
            return make(numbers, times_us), (times_us - start_us).tolist()

        return chunk

    def _columns(self, start_us: int) -> Columns:
        offsets, make, arrow = self._offsets(start_us), self._maker.columns(), self._schema.arrow
        step = max(_COLUMN_WORDS_MAX // max(self._maker.words, 1), 1)

        def columns(first: int, count: int, stride: int) -> pa.RecordBatch:
            parts = [
                pa.RecordBatch.from_arrays(
                    make(*offsets(first + at * stride, min(step, count - at), stride)), schema=arrow
                )
                for at in range(0, count, step)
            ]
            return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

        return columns


def generator(
    fields: Mapping[str, object] | FieldSpec | UserFunction,
    *,
    rate: float | RateSchedule | None,
    seed: int = 0,
    total: int | None = None,
    partitions: int | None = None,
    format: str | None = None,
    schema: str | Schema | None = None,
) -> Generator:
    """Generate records that are the same in every run.

    Parameters
    ----------
    fields : mapping, field or callable
        Field names with what ``ps.fields`` builds, or plain values that are the same in every record; a
        single field for text; or a function of a :class:`Context` that returns a record.
    rate : float, RateSchedule or None
        Records per second over all partitions, or what ``ps.rates`` builds. None: as fast as they are read,
        with event times that count a microsecond per record from the start.
    seed : int
        Seed of all that is random. What is drawn depends on the seed, the field's name and the offset only.
    total : int, optional
        Number of records after which the source ends.
    partitions : int, optional
        Number of partitions; the job's parallelism where not given. It changes who reads a record, not what
        is in it.
    format : {"json", "columns", "text"}, optional
        "json": ``value binary`` that holds a JSON object (default); "text": ``value string`` from a single
        field; "columns": a column for each field (default where ``schema`` is given).
    schema : str or Schema, optional
        Schema of the records that a function returns in format "columns".
    """
    Whole(0, _SEED_MAX).read("seed", seed)
    if total is not None:
        Whole(0).read("total", total)
    if partitions is not None:
        Whole(1, _PARTITIONS_MAX).read("partitions", partitions)
    form = OneOf(Format).read("format", format if format is not None else "json" if schema is None else "columns")
    make = _parts(fields)
    return Generator(
        make,
        as_schedule(rate),
        _schema(make, form, schema),
        form,
        seed=seed,
        total=total,
        partitions=partitions,
    )


def _parts(fields: object) -> dict[str, FieldSpec] | UserFunction:
    if isinstance(fields, FieldSpec):
        return {"value": fields}
    if isinstance(fields, Mapping) and fields and all(isinstance(name, str) for name in fields):
        return {name: spec if isinstance(spec, FieldSpec) else Constant(name, spec) for name, spec in fields.items()}
    if callable(fields):
        return fields
    raise InvalidOption(option="fields", given=fields, allowed="a dict of names and fields, a field or a function")


def _schema(make: dict[str, FieldSpec] | UserFunction, form: Format, schema: str | Schema | None) -> Schema:
    if schema is not None:
        if isinstance(make, dict) or form is not Format.COLUMNS:
            raise InvalidOption(option="schema", given=str(schema), allowed="only with a function and format 'columns'")
        return Schema.parse(schema)
    if form is Format.JSON:
        return _JSON_SCHEMA
    if form is Format.TEXT:
        if isinstance(make, dict) and [spec.type for spec in make.values()] != [STRING]:
            raise InvalidOption(option="fields", given=list(make), allowed="a single string field in format 'text'")
        return _TEXT_SCHEMA
    if not isinstance(make, dict):
        raise InvalidOption(option="schema", given=None, allowed="the schema of the function's records")
    return Schema(tuple(Field(name, spec.type, spec.nullable) for name, spec in make.items()))
