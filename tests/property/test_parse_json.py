"""Both forms of parse_json on random and on nasty text: equal rows, counts and dead letters."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agreeing import FORMS, POLICIES, Outcome, agree, exact_rows
from penstock.operators import (
    ErrorPolicy,
    ParseJson,
    TimeUnit,
)
from penstock.types import Schema

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
