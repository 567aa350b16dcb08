"""Both forms of every operation on random and on nasty input: equal rows, side outputs, counts and dead letters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import OperationFailed, PenstockError, TypeMismatch
from penstock.expr import col, lit, when
from penstock.operators import (
    DEAD_LETTERS,
    Aggregation,
    Apply,
    BatchResult,
    Combine,
    ErrorPolicy,
    Errors,
    Filter,
    How,
    Join,
    JoinHow,
    Lookup,
    Operation,
    ParseJson,
    Partitioner,
    Project,
    Result,
    Side,
    Split,
    Tag,
    TimeUnit,
    op,
    sliding,
    table,
    tumbling,
)
from penstock.operators.errors import ErrorCounts
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.bounds import Bounds
from penstock.types import DataType, Record, Schema, TypeKind, record_dict

POLICIES = st.sampled_from(ErrorPolicy)
FORMS = ["record", "batch"]

_SCALARS: dict[TypeKind, st.SearchStrategy[Any]] = {
    TypeKind.BOOLEAN: st.booleans(),
    TypeKind.DOUBLE: st.floats(width=64) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]),
    TypeKind.STRING: st.text(max_size=4) | st.sampled_from(["", "a", "view", "é", "😀"]),
    TypeKind.BINARY: st.binary(max_size=4),
    # Half of the range, so that a window's bounds are times as well.
    TypeKind.TIMESTAMP: st.integers(-(1 << 61), 1 << 61) | st.integers(-25_000_000, 25_000_000),
}


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values of a type, not null."""
    if data_type.element is not None:
        return st.lists(st.none() | values_of(data_type.element), max_size=3)
    if data_type.kind in _SCALARS:
        return _SCALARS[data_type.kind]
    low, high = data_type.bounds()
    return st.integers(low, high) | st.sampled_from([low, high, 0, 1, -1]) | st.integers(-3, 3)


def rows_of(schema: Schema, max_size: int = 12, **special: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Record]]:
    """Lists of records of a schema, columns drawn from ``special`` where given."""
    columns = [
        (st.none() | values if field.nullable else values)
        for field in schema.fields
        for values in [special.get(field.name, values_of(field.type))]
    ]
    return st.lists(st.builds(schema.record_type, *columns), max_size=max_size)


def exact(value: Any) -> Any:
    """A value that compares as exactly as its text does: 1 is not 1.0, NaN is NaN, -0.0 is not 0.0."""
    if isinstance(value, list | tuple):
        return tuple(map(exact, value))
    return (type(value).__name__, repr(value))


def exact_rows(rows: list[Record]) -> list[Any]:
    return [tuple((name, exact(value)) for name, value in record_dict(row).items()) for row in rows]


def _columns(schema: Schema, rows: list[Record], form: str) -> pa.RecordBatch:
    """Return the rows as columns, for the form "slice" as a part of longer ones."""
    if form == "batch":
        return schema.to_batch(rows)
    return schema.to_batch([*rows[-1:], *rows, *rows[:1]]).slice(len(rows[-1:]), len(rows))


class Outcome:
    """Everything that one form of an operation did with a list of rows."""

    def __init__(self, operation: Operation, schema: Schema, rows: list[Record], policy: ErrorPolicy, form: str):
        errors = Errors("under test", policy)
        output = operation.bind(schema)
        operator = operation.build(schema, errors)
        self.failure: str | None = None
        self.rows: list[Record] = []
        done: Result | BatchResult | None = None
        try:
            if form == "record":
                done = operator.process(rows)
                self.rows = done.rows
            else:
                done = operator.process_batch(_columns(schema, rows, form))
                done.columns.validate(full=True)
                assert done.columns.schema == output.arrow
                self.rows = output.to_rows(done.columns)
        except PenstockError as error:
            at = error.at_index if isinstance(error, OperationFailed) else None
            self.failure = f"{type(error).__name__} at {at}: {error}"
        failures = done.failures if done is not None else None
        self.sides = (done.sides or {}) if done is not None else {}
        assert all(self.sides.values()), "only ports that have records"
        self.counts = failures.counts if failures is not None else ErrorCounts()
        self.dead_letters = self.sides.get(DEAD_LETTERS, [])
        self.dead = [(each.at, exact_rows([each.record])) for each in failures.dead] if failures is not None else []

    def effects(self) -> Any:
        """All but the rows."""
        return (
            self.failure,
            {port: exact_rows(held) for port, held in self.sides.items()},
            self.counts,
            self.dead,
        )


def agree(operation: Operation, schema: Schema, rows: list[Record], policy: ErrorPolicy = ErrorPolicy.FAIL) -> Outcome:
    """Run both forms and require that nothing tells them apart; return what the record form did."""
    record, batch, part = (Outcome(operation, schema, rows, policy, form) for form in (*FORMS, "slice"))
    assert record.effects() == batch.effects() == part.effects()
    assert exact_rows(record.rows) == exact_rows(batch.rows) == exact_rows(part.rows)
    return record


# --- parse_json -------------------------------------------------------------------------------------------------------

TEXT = Schema.parse("id bigint, value binary")
EVENT = Schema.parse("s string, n bigint, d double, b boolean, t timestamp, small tinyint")
STRICT = Schema.parse("s string not null, n int not null")
SLOW = Schema.parse("day date, words array<string>, n smallint")
JSON_SCHEMAS = [EVENT, STRICT, SLOW]

_TOKENS = st.sampled_from(
    [
        "null", "true", "false", "0", "-0", "1", "-1", "127", "128", "-129", "32768", "2147483648", "1.0",
        "1.5", "-0.0",
        "1e3", "1E+2", "1e400", "-1e400", "1e-400", "1.7976931348623159e308", "NaN", "Infinity", "-Infinity",
        "nan", "Inf",
        "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
        "4611686018427387", "4611686018427388", "-4611686018427388", "123456789012345678901234567890",
        "01", "+1", ".5", "1.", "1e", "-", "0x1", "tru", "'a'", '""', '"a"', '"1"', '"view"', '"NaN"', '"é"', '"😀"',
        '"\\n"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\x"', '"a\\"b"', '"{"', '"}"', '"a', "[]", "[1]",
        '["a", null]', '["a", 1]', "{}", '{"a": 1}', "[1,]", '"2024-02-29"', '"2023-02-29"', '"2024-02-29T12:00:00Z"',
        '"2024-02-29T12:00:00.123456+02:00"', '"2024-02-29 12:00"', '"0001-01-01T00:00:00+14:00"', "", " ",
        "[" * 1200 + "]" * 1200,
    ]
)  # fmt: skip
_NAMES = st.sampled_from(
    ['"s"', '"n"', '"d"', '"b"', '"t"', '"small"', '"day"', '"words"', '"other"', '"\\u0073"', "s", ""]
)
_SPACE = st.sampled_from(["", " ", "\t", "\n", "\r\n", "\x0b"])


@st.composite
def _members(draw: st.DrawFn) -> str:
    space = draw(_SPACE)
    members = draw(st.lists(st.tuples(_NAMES, _TOKENS), max_size=5))
    return "{" + space + ", ".join(f"{name}:{space}{token}" for name, token in members) + "}"


_GOOD = st.fixed_dictionaries(
    {},
    optional={
        "s": st.none() | st.text(max_size=4),
        "n": st.none() | st.integers(-100, 100),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
        "b": st.none() | st.booleans(),
        "t": st.none() | st.integers(-(10**12), 10**12),
        "small": st.none() | st.integers(-128, 127),
        "day": st.dates().map(str),
        "words": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
        "other": st.recursive(
            st.none() | st.booleans(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=4
        ),
    },
).map(lambda members: json.dumps(members, ensure_ascii=False))

_NASTY = st.sampled_from(
    [
        b"", b" ", b"\n", b"null", b"1", b'"a"', b"[]", b"[{}]", b"{", b"}", b"{}{}", b"{} {}",
        b'{"n":1}\n{"n":2}', b'{"n":1}\n',
        b'\n{"n":1}', b' {"n":1}', b'{"n":1} ', b'\xef\xbb\xbf{"n":1}', b'{"s":"\xff"}', b'{"s":"\xed\xa0\x80"}',
        b'{"\xff":1}', b'{"s":"a\x00b"}', b'{"s":"a\nb"}', b'{"s":"a\x01b"}', b'{"s":"x}', b'{"}', b'{"n":1,"n":2}',
        b'{"n":2,"n":null}',
        b'{"other":NaN}', b'{"other":[-Infinity]}', b'{"other": Inf}', b'{"n":1,}', b'{"n":1}garbage',
        b'{"n":1}}', b'{"n" 1}', b'{n:1}',
        b'{"other":' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"s":"' + b"x" * 5000 + b'"}', b'{"other":"Information, NaN, [-Inf"}',
        b'\xff\xfe{\x00}\x00', b"{}\x00",
        b'{"s": "a"} // no', b'{"s":"\xc3\xa9","n":0,"d":2,"b":true,"t":1700000000000,"small":-128}',
    ]
)  # fmt: skip
_TEXTS = st.one_of(
    _GOOD.map(str.encode), _GOOD.map(str.encode), _members().map(str.encode), _NASTY, st.binary(max_size=12)
)


@given(
    values=st.lists(st.none() | _TEXTS, max_size=6) | st.lists(_GOOD.map(str.encode), max_size=12),
    schema=st.sampled_from(JSON_SCHEMAS),
    unit=st.sampled_from(TimeUnit),
    policy=POLICIES,
)
@example([b'{"s":"x}', b'{"}', b"{}{}"], EVENT, TimeUnit.SECONDS, ErrorPolicy.SKIP)
@example([b'{"other":{}', b"{}}"], EVENT, TimeUnit.SECONDS, ErrorPolicy.SKIP)
@example([b'{"other":[{}', b"{}]}", b"{}{}"], EVENT, TimeUnit.SECONDS, ErrorPolicy.SKIP)
@example([b'{"other":"}', b'{"}', b"{} {}"], EVENT, TimeUnit.SECONDS, ErrorPolicy.SKIP)
@example([b"{}", b'{"t":1e18}', b'{"t":"2024-02-29"}'], EVENT, TimeUnit.SECONDS, ErrorPolicy.SKIP)
@example([b'{"other":NaN}'], EVENT, TimeUnit.SECONDS, ErrorPolicy.SKIP)
@example([b"{}{}", b"{}"], EVENT, TimeUnit.SECONDS, ErrorPolicy.SKIP)
@example([b'{"other":' + b"[" * 3000 + b"]" * 3000 + b"}"], EVENT, TimeUnit.SECONDS, ErrorPolicy.SKIP)
def test_parse_json(values: list[bytes | None], schema: Schema, unit: TimeUnit, policy: ErrorPolicy) -> None:
    rows = [TEXT.record_type(i, value) for i, value in enumerate(values)]
    done = agree(ParseJson(schema, "value", unit), TEXT, rows, policy)
    if done.failure is None:
        assert len(done.rows) + done.counts.skipped + done.counts.dead_letters == len(rows)
        for row in done.rows:
            schema.check(row)


@given(st.lists(_NASTY | _GOOD.map(str.encode), min_size=1, max_size=4))
def test_parse_json_judges_each_record_alone(values: list[bytes]) -> None:
    operation = ParseJson(EVENT)
    alone = [agree(operation, TEXT, [TEXT.record_type(0, value)], ErrorPolicy.SKIP).rows for value in values]
    together = agree(operation, TEXT, [TEXT.record_type(0, value) for value in values], ErrorPolicy.SKIP)
    assert exact_rows(together.rows) == exact_rows([row for rows in alone for row in rows])


@given(st.lists(st.none() | _GOOD | _members(), max_size=5), POLICIES)
def test_parse_json_from_a_string_column(values: list[str | None], policy: ErrorPolicy) -> None:
    schema = Schema.parse("value string")
    agree(ParseJson(EVENT), schema, [schema.record_type(value) for value in values], policy)


@given(st.lists(st.none() | _GOOD | _members(), max_size=5), POLICIES)
def test_parse_json_keeps_columns_beside(values: list[str | None], policy: ErrorPolicy) -> None:
    schema = Schema.parse("value string, key binary, at timestamp")
    rows = [schema.record_type(value, b"%d" % i, i or None) for i, value in enumerate(values)]
    done = agree(ParseJson(EVENT, keep=("at", "key")), schema, rows, policy)
    assert all(row.at == (int(row.key) or None) for row in done.rows)


@pytest.mark.parametrize("form", FORMS)
def test_parse_json_reads_what_json_says(form: str) -> None:
    text = b'{"s":"caf\xc3\xa9","n":-7,"d":3,"b":false,"t":1700000000123,"small":5,"extra":[1]}'
    done = Outcome(ParseJson(EVENT), TEXT, [TEXT.record_type(0, text)], ErrorPolicy.FAIL, form)
    assert exact_rows(done.rows) == exact_rows([EVENT.record_type("café", -7, 3.0, False, 1_700_000_000_123_000, 5)])


# --- expressions ------------------------------------------------------------------------------------------------------

MIXED = Schema.parse(
    "k string, n bigint, i int, x double, b boolean, at timestamp, day date, raw binary, words array<string>,"
    " m bigint not null"
)
MIXED_ROWS = rows_of(MIXED)
CONDITIONS = st.sampled_from(
    [
        col("k") == "view",
        (col("n") > 0) | col("k").is_null(),
        ~(col("x") < 1.5) & col("b"),
        col("b"),
        10 / col("n") > 1,
        col("n") * col("m") > 0,
        col("i") % col("m") == 1,
        col("k").isin("a", "view"),
        col("at") > "1970-01-01T00:00:10",
        col("n") + 1 > col("m"),
        lit(True),
        lit(False),
    ]
)


@given(MIXED_ROWS, CONDITIONS, POLICIES)
def test_filter(rows: list[Record], condition: Any, policy: ErrorPolicy) -> None:
    agree(Filter(condition), MIXED, rows, policy)


PROJECTED = st.lists(
    st.sampled_from(
        [
            col("k"),
            (col("n") + col("m")).alias("sum"),
            (col("x") / col("i")).alias("ratio"),
            (-col("m")).alias("negated"),
            col("n").cast("tinyint").alias("narrow"),
            col("k").upper().alias("upper"),
            when(col("b"), col("n")).otherwise(col("m")).alias("chosen"),
            lit(1).alias("one"),
            lit("a").alias("letter"),
            col("words"),
            col("raw"),
            col("day"),
            (col("at") > "1970-01-01T00:00:00").alias("after"),
        ]
    ),
    min_size=1,
    max_size=4,
    unique_by=str,
)


@given(MIXED_ROWS, PROJECTED, st.booleans(), POLICIES)
def test_select_and_with_columns(rows: list[Record], columns: list[Any], keep: bool, policy: ErrorPolicy) -> None:
    agree(Project(tuple(columns), keep), MIXED, rows, policy)


@given(MIXED_ROWS, POLICIES)
def test_with_columns_replaces_in_place(rows: list[Record], policy: ErrorPolicy) -> None:
    operation = Project(((col("n") + 1).alias("n"), col("m").alias("last")), keep=True)
    assert operation.bind(MIXED).names == (*MIXED.names, "last")
    done = agree(operation, MIXED, rows, policy)
    if policy in (ErrorPolicy.SKIP, ErrorPolicy.DEAD_LETTER):
        fine = [row for row in rows if row.n != (1 << 63) - 1]
        assert [row.n for row in done.rows] == [None if row.n is None else row.n + 1 for row in fine]


@given(MIXED_ROWS, st.lists(CONDITIONS, min_size=1, max_size=3), POLICIES)
def test_split(rows: list[Record], conditions: list[Any], policy: ErrorPolicy) -> None:
    operation = Split(tuple((f"branch{i}", condition) for i, condition in enumerate(conditions)))
    done = agree(operation, MIXED, rows, policy)
    assert done.rows == []
    if done.failure is None:
        out = sum(map(len, done.sides.values()))
        assert out + done.counts.skipped == len(rows)


# --- users' functions -------------------------------------------------------------------------------------------------

NUMBERS = Schema.parse("n bigint, s string")
NUMBER_ROWS = rows_of(NUMBERS, n=st.integers(-5, 20))


@op(schema="n bigint not null, half double, label string")
def halve(r: Record) -> Any:
    if r.n == 7:
        raise ValueError("seven")
    return {"n": r.n, "half": r.n / 2 if r.n % 2 else r.n // 2, "label": r.s}


@op(schema="n bigint not null, half double, label string")
def halve_both(r: Record) -> Any:
    return halve.record_form(r)


@halve_both.batch
def _halve_batch(batch: pa.RecordBatch) -> Any:
    if pc.any(pc.equal(batch.column("n"), 7)).as_py():
        raise ValueError("seven somewhere")
    return pa.table(
        {"label": batch.column("s"), "n": batch.column("n"), "half": pc.divide(batch.column("n").cast("float64"), 2.0)}
    )


@op(schema="part int, of string")
def repeat(r: Record) -> Any:
    if r.n == 7:
        raise ValueError("seven")
    return ((i, r.s) if i % 2 else {"part": i, "of": r.s} for i in range(r.n))


@op(schema="part int, of string")
def repeat_both(r: Record) -> Any:
    return repeat.record_form(r)


@repeat_both.batch
def _repeat_batch(batch: pa.RecordBatch) -> Any:
    counts = batch.column("n").to_pylist()
    if 7 in counts or None in counts:
        raise ValueError("left to the records")
    at = [i for i, n in enumerate(counts) for _ in range(n)]
    parts = [part for n in counts for part in range(n)]
    return pa.record_batch({"part": pa.array(parts, "int64"), "of": batch.column("s").take(pa.array(at, "int64"))})


@op(schema="n tinyint")
def wrong(r: Record) -> Any:
    """Return whatever a confused user may."""
    return [r.n, 1000, "1", True, 1.5, (1, 2), {"m": 1}, None][(r.n or 0) % 8]


@given(
    NUMBER_ROWS,
    st.sampled_from([Apply(halve), Apply(halve_both), Apply(repeat, True), Apply(repeat_both, True), Apply(wrong)]),
    POLICIES,
)
def test_map_and_flat_map(rows: list[Record], operation: Apply, policy: ErrorPolicy) -> None:
    done = agree(operation, NUMBERS, rows, policy)
    if policy is ErrorPolicy.DEAD_LETTER and operation.function in (halve, halve_both):
        bad = [row for row in rows if row.n is None or row.n == 7]
        assert [json.loads(letter.record)["n"] for letter in done.dead_letters] == [row.n for row in bad]
        assert all("in halve" in letter.traceback for letter in done.dead_letters)


@given(NUMBER_ROWS)
def test_both_kinds_of_functions_agree_with_each_other(rows: list[Record]) -> None:
    for plain, both, flat in [(halve, halve_both, False), (repeat, repeat_both, True)]:
        left = agree(Apply(plain, flat), NUMBERS, rows, ErrorPolicy.SKIP)
        right = agree(Apply(both, flat), NUMBERS, rows, ErrorPolicy.SKIP)
        assert exact_rows(left.rows) == exact_rows(right.rows)


@pytest.mark.parametrize(
    "returned",
    [
        lambda batch: batch.slice(1),
        lambda batch: pa.record_batch({"other": batch.column("n")}),
        lambda batch: None,
        lambda batch: pa.record_batch({"n": pa.nulls(batch.num_rows, pa.int64())}),
        lambda batch: pa.record_batch({"n": pa.array(["x"] * batch.num_rows)}),
    ],
    ids=["too few rows", "wrong column", "no batch", "nulls in a not null column", "wrong type"],
)
def test_a_wrong_batch_form_falls_back_to_the_record_form(returned: Callable[[pa.RecordBatch], Any]) -> None:
    @op(schema="n bigint not null")
    def same(r: Record) -> Any:
        return (r.n,)

    same.batch(returned)
    rows = [NUMBERS.record_type(n, "") for n in (1, 2, 3)]
    assert [row.n for row in agree(Apply(same), NUMBERS, rows).rows] == [1, 2, 3]


@pytest.mark.parametrize("form", FORMS)
def test_retry_gives_every_record_its_attempts(form: str) -> None:
    """Also when so many fail that bookkeeping per retry would add up."""
    seen: dict[int, int] = {}

    def flaky(r: Record) -> Any:
        seen[r.n] = seen.get(r.n, 0) + 1
        if seen[r.n] <= r.n % 4:
            raise ConnectionError("try again")
        return (r.n,)

    rows = [NUMBERS.record_type(n, "") for n in range(100_000)]
    done = Outcome(Apply(op(schema="n bigint")(flaky)), NUMBERS, rows, ErrorPolicy.RETRY, form)
    assert done.failure is None
    assert [row.n for row in done.rows] == list(range(100_000))
    assert done.counts.retried == sum(n % 4 for n in range(100_000))


@pytest.mark.parametrize("form", FORMS)
def test_retry_gives_up_in_the_end(form: str) -> None:
    calls = []

    def never(r: Record) -> Any:
        calls.append(r.n)
        raise ConnectionError("down")

    operation = Apply(op(schema="n bigint")(never))
    done = Outcome(operation, NUMBERS, [NUMBERS.record_type(5, "")], ErrorPolicy.RETRY, form)
    assert done.failure is not None
    assert "ConnectionError: down" in done.failure
    assert calls == [5] * 4


# --- lookup -----------------------------------------------------------------------------------------------------------

KEYED = Schema.parse("k string, i int, at timestamp, day date, b boolean, raw binary")
_KEY_VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", "", "é", None],
    "i": [0, 1, -1, (1 << 31) - 1, None],
    "at": [0, 1, -1_000_001, None],
    "day": [0, -1, 19_000, None],
    "b": [True, False, None],
    "raw": [b"", b"a", b"\xff", None],
}


@given(st.data(), st.sampled_from(KEYED.names), st.sampled_from(How), POLICIES)
def test_lookup(data: st.DataObject, on: str, how: How, policy: ErrorPolicy) -> None:
    ddl = KEYED.field(on).type.ddl
    keys = data.draw(st.lists(st.sampled_from(_KEY_VALUES[on]), unique=True))
    rows = [(key, f"name {i}" if i % 2 else None, i) for i, key in enumerate(keys)]
    found = table(rows, schema=f"key {ddl}, label string, n bigint not null", key="key")
    special = {on: st.sampled_from(_KEY_VALUES[on][:-1]) | values_of(KEYED.field(on).type)}
    records = data.draw(rows_of(KEYED, **special))
    done = agree(Lookup(found, on, how), KEYED, records, policy)
    by_key = {key: (label, n) for key, label, n in rows if key is not None}
    expected = [
        (getattr(r, on), *by_key.get(getattr(r, on), (None, None)))
        for r in records
        if how is How.LEFT or getattr(r, on) in by_key
    ]
    assert [(exact(getattr(r, on)), r.label, r.n) for r in done.rows] == [(exact(k), *rest) for k, *rest in expected]


@pytest.mark.parametrize("ddl", ["double", "array<int>"])
def test_a_table_has_a_key_that_both_forms_compare_alike(ddl: str) -> None:
    with pytest.raises(TypeMismatch, match="cannot be a key"):
        table([], schema=f"key {ddl}, label string", key="key")


# --- aggregation before the shuffle -----------------------------------------------------------------------------------

GROUPED = Schema.parse(
    "k string, i int, b boolean, raw binary, day date, n bigint, small tinyint, x double, s string, at timestamp,"
    " w array<int>"
)
_SMALL: dict[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from(["a", "b", ""]),
    "i": st.integers(0, 2),
    "raw": st.sampled_from([b"", b"a"]),
    "day": st.integers(-1, 1),
    "at": st.integers(-25_000_000, 25_000_000),
    "x": st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]),
    "n": st.integers(-5, 5) | st.sampled_from([(1 << 63) - 1, -(1 << 63), 1 << 62]),
}
GROUPED_ROWS = rows_of(GROUPED, max_size=20, **_SMALL)


class Spread(agg.Mergeable):
    """Largest minus smallest; fails on 13, in ``add``."""

    def init(self) -> list[int]:
        return []

    def add(self, state: list[int], record: Any) -> list[int]:
        if record.small == 13:
            raise ValueError("thirteen")
        return state if record.small is None else self.merge(state, [record.small, record.small])

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        if not left or not right:
            return left or right
        return [min(left[0], right[0]), max(left[1], right[1])]

    def result(self, state: list[int]) -> int | None:
        return state[1] - state[0] if state else None


AGGREGATES: dict[str, agg.Aggregate] = {
    "count": agg.count(),
    "count_x": agg.count("x"),
    "count_w": agg.count("w"),
    "sum_n": agg.sum("n"),
    "sum_small": agg.sum("small"),
    "sum_x": agg.sum("x"),
    "mean_n": agg.mean("n"),
    "mean_x": agg.mean("x"),
    "spread": agg.custom(Spread(), type="bigint"),
    **{f"min_{c}": agg.min(c) for c in ("n", "small", "x", "s", "b", "day", "at")},
    **{f"max_{c}": agg.max(c) for c in ("n", "small", "x", "s", "b", "day", "at")},
    **{f"first_{c}": agg.first(c) for c in GROUPED.names},
    **{f"last_{c}": agg.last(c) for c in GROUPED.names},
}
WINDOWS = [
    None,
    tumbling("10s", on="at"),
    tumbling("7us", on="at", lateness="1s", emit="update"),
    sliding("10s", slide="4s", on="at"),
    tumbling("12us", on="at", early="4us"),
    sliding("12s", slide="4s", on="at", early="2s"),
]
KEYS = st.lists(st.sampled_from(["k", "i", "b", "raw", "day"]), unique=True, max_size=3).map(tuple)


def _sums(operation: Combine) -> set[str]:
    """Names of the slots that hold sums of doubles."""
    return {
        f"_p{i}_0"
        for i, (_, each) in enumerate(operation.of.aggregates)
        if each.word in ("sum", "mean") and each.column == "x"
    }


def agree_on_partials(operation: Combine, rows: list[Record], policy: ErrorPolicy) -> Outcome:
    """As `agree`, but sums of doubles may differ by their rounding."""
    record, batch = (Outcome(operation, GROUPED, rows, policy, form) for form in FORMS)
    assert record.effects() == batch.effects()
    assert len(record.rows) == len(batch.rows)
    rounded = _sums(operation)
    # Rounding is relative to what was added up, which may be much larger than the sum.
    slack = 1e-9 * sum(abs(row.x) for row in rows if row.x is not None and math.isfinite(row.x))
    for mine, theirs in zip(record.rows, batch.rows, strict=True):
        for name, value in record_dict(mine).items():
            other = getattr(theirs, name)
            if name in rounded and value is not None and math.isfinite(value):
                assert value == pytest.approx(other, rel=1e-9, abs=slack)
            else:
                assert exact(value) == exact(other), name
    return record


@pytest.mark.parametrize("name", AGGREGATES)
@given(rows=GROUPED_ROWS, keys=KEYS, window=st.sampled_from(WINDOWS), policy=POLICIES)
def test_each_aggregate_combines(
    name: str, rows: list[Record], keys: tuple[str, ...], window: Any, policy: ErrorPolicy
) -> None:
    agree_on_partials(Combine(Aggregation(keys, (("a", AGGREGATES[name]),), window)), rows, policy)


@given(
    rows=GROUPED_ROWS,
    keys=KEYS,
    window=st.sampled_from(WINDOWS),
    names=st.lists(st.sampled_from([n for n in AGGREGATES if AGGREGATES[n].arrow_functions]), min_size=1, max_size=5),
    policy=POLICIES,
)
def test_several_aggregates_combine(
    rows: list[Record], keys: tuple[str, ...], window: Any, names: list[str], policy: ErrorPolicy
) -> None:
    aggregates = tuple((f"a{i}", AGGREGATES[name]) for i, name in enumerate(names))
    done = agree_on_partials(Combine(Aggregation(keys, aggregates, window)), rows, policy)
    if done.failure is None:
        lost = done.counts.skipped + done.counts.dead_letters
        assert sum(row._n for row in done.rows) + lost == len(rows)


@given(GROUPED_ROWS, st.sampled_from(WINDOWS), POLICIES)
def test_whole_records_pass_a_combine(rows: list[Record], window: Any, policy: ErrorPolicy) -> None:
    operation = Combine(Aggregation(("k",), (("n", agg.count()),), window), whole=True)
    done = agree(operation, GROUPED, rows, policy)
    if window is None:
        assert exact_rows(done.rows) == exact_rows(rows)
    elif done.failure is None:
        timed = [row for row in rows if row.at is not None]
        assert exact_rows(done.rows) == exact_rows(timed)


# --- joins before the shuffle -----------------------------------------------------------------------------------------

CLICKS = Schema.parse("at timestamp, k string, i int not null, n bigint, w array<int>, x double, raw binary not null")
VIEWS = Schema.parse("k string, seen timestamp, i int not null, s string, day date, b boolean")


@pytest.mark.parametrize("how", list(JoinHow))
@pytest.mark.parametrize("side", list(Side))
@settings(max_examples=50)
@given(data=st.data(), keys=st.sampled_from([("k",), ("i",), ("i", "k")]), policy=POLICIES)
def test_sides_of_a_join(
    how: JoinHow, side: Side, data: st.DataObject, keys: tuple[str, ...], policy: ErrorPolicy
) -> None:
    of = Join(keys, "at", "seen", Bounds.within(10), how=how)
    left, right = CLICKS, Schema(tuple(f for f in VIEWS.fields if f.name in keys or f.name not in CLICKS))
    of.bind(left, right)
    schema, time = (left, "at") if side is Side.LEFT else (right, "seen")
    rows = data.draw(rows_of(schema))
    done = agree(Tag(of, left, right, side), schema, rows, policy)
    if done.failure is None:
        timed = [row for row in rows if getattr(row, time) is not None]
        shown = timed if how.keeps(side) else [r for r in timed if getattr(r, keys[-1]) is not None]
        assert [(row._t, row._side) for row in done.rows] == [(getattr(row, time), side is Side.RIGHT) for row in shown]


# --- dealing out by key -----------------------------------------------------------------------------------------------


@given(
    rows_of(GROUPED, max_size=20),
    st.lists(st.sampled_from(["k", "i", "b", "raw", "day", "at", "n"]), unique=True, min_size=1, max_size=3),
    st.integers(1, 5),
)
def test_rows_and_columns_are_dealt_alike(rows: list[Record], keys: list[str], instances: int) -> None:
    by_rows = Partitioner(tuple(keys), instances).rows(rows)
    by_columns = Partitioner(tuple(keys), instances).columns(GROUPED.to_batch(rows))
    assert len(by_rows) == len(by_columns) == instances
    for mine, theirs in zip(by_rows, by_columns, strict=True):
        assert exact_rows(mine) == exact_rows(GROUPED.to_rows(theirs))
    assert sum(map(len, by_rows)) == len(rows)
