"""Ordinary input stays in the vectorised forms: a batch that falls back to the loop costs more than no batch at all."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.operators import Aggregation, Combine, Errors, How, Lookup, Operation, ParseJson, Table, tumbling
from penstock.operators.keyed import aggregates as agg
from penstock.types import Record, Schema

_EVENTS = Schema.parse("k string, i int, b boolean, day date, n bigint, small tinyint, x double, at timestamp not null")
_ROWS = [
    _EVENTS.record_type(f"k{i % 4}", i % 3, i % 2 == 0, i % 5, i if i % 7 else None, i % 100, i / 4, i * 1000)
    for i in range(60)
]


def _agree(operation: Operation, schema: Schema, rows: list[Record]) -> list[Record]:
    operator = operation.build(schema, Errors("under test"))
    done = operator.process(rows)
    batch = operator.process_batch(schema.to_batch(rows))
    assert not batch.fallbacks
    assert operation.bind(schema).to_rows(batch.columns) == done.rows
    return done.rows


@pytest.mark.parametrize("keys", [(), ("k",), ("i", "b", "day")], ids=str)
@pytest.mark.parametrize("window", [None, tumbling("10ms", on="at")], ids=str)
@pytest.mark.parametrize(
    "aggregate",
    [
        *(agg.count(column) for column in (None, "n", "k")),
        *(kind(column) for kind in (agg.sum, agg.mean, agg.min, agg.max) for column in ("n", "small", "x")),
        *(kind(column) for kind in (agg.min, agg.max) for column in ("k", "b", "day", "at")),
    ],
    ids=str,
)
def test_combine(aggregate: agg.Aggregate, keys: tuple[str, ...], window: object) -> None:
    operation = Combine(Aggregation(keys, (("n", agg.count()), ("a", aggregate)), window))  # type: ignore[arg-type]
    assert _agree(operation, _EVENTS, _ROWS)
    assert _agree(operation, _EVENTS, []) == []


@pytest.mark.parametrize("time", ['"2024-02-29T12:00:00Z"', "1700000000123", "1.5", "null"])
def test_parse_json(time: str) -> None:
    """All types, escapes and line breaks inside texts, times in every form, nested members that are not asked for."""
    schema = Schema.parse("s string, n bigint, x double, b boolean, t timestamp, day date, words array<string>")
    text = (
        f'{{"s":"a\\n\\u00e9","n":-1,"x":2,"b":true,"t":{time},"day":"2024-02-29","words":["a",null],'
        '"other":{"NaN":[1,{}]}}'
    )
    raw = Schema.parse("value binary")
    # More than are decoded at once.
    rows = [raw.record_type(text.encode()), raw.record_type(b"{}")] * 10_000
    done = _agree(ParseJson(schema), raw, rows)
    assert len(done) == len(rows)
    assert (done[0].s, done[0].x, done[0].words, done[1].s) == ("a\né", 2.0, ["a", None], None)


@pytest.mark.parametrize("how", How)
@pytest.mark.parametrize("table_rows", [2, 1000], ids=["a small table", "a table larger than the batch"])
def test_lookup(how: How, table_rows: int) -> None:
    table = Table([(f"k{i}", i) for i in range(table_rows)], "key string, place bigint", "key")
    done = _agree(Lookup(table, "k", how), _EVENTS, [*_ROWS, _EVENTS.record_type(None, 0, True, 0, 0, 0, 0.0, 0)])
    assert sum(row.place is None for row in done) == (0 if how is How.INNER else 31 if table_rows == 2 else 1)


def test_a_slice_of_a_batch_is_parsed_alone() -> None:
    raw = Schema.parse("value string")
    operator = ParseJson(Schema.parse("n bigint")).build(raw, Errors("under test"))
    batch = pa.record_batch({"value": [None, '{"n":1}', '{"n":2}', "no JSON"]}, schema=raw.arrow).slice(1, 2)
    done = operator.process_batch(batch)
    assert done.columns.to_pylist() == [{"n": 1}, {"n": 2}]
    assert not done.fallbacks
