"""Schemas in Spark's DDL: what is read, what is refused, and what the error says."""

from __future__ import annotations

import pytest

from penstock.errors import SchemaError, UnknownColumn
from penstock.types import BIGINT, FLOAT, STRING, TIMESTAMP, Field, Schema, array_of, parse_type


@pytest.mark.parametrize(
    ("ddl", "canonical"),
    [
        ("a string", "a string"),
        ("a STRING, b BigInt NOT NULL", "a string, b bigint not null"),
        ("  a:long ,b : byte", "a bigint, b tinyint"),
        ("a float, b real, c double", "a float, b float, c double"),
        ("a array<array<timestamp>>, b array<int>not null", "a array<array<timestamp>>, b array<int> not null"),
        ("`a` integer, `b` bool, c short", "a int, b boolean, c smallint"),
        ("date date, timestamp timestamp, string string", "date date, timestamp timestamp, string string"),
        ("a\tint\n,\nb binary", "a int, b binary"),
        ("_ int, _1 int, match int", "_ int, _1 int, match int"),
        ("a decimal, b numeric(4), c dec(38,38)", "a decimal(10,0), b decimal(4,0), c decimal(38,38)"),
        ("a map<string,array<int>>", "a map<string, array<int>>"),
        ("a struct<b int not null, `c d`: struct<e: date>>", "a struct<b: int not null, `c d`: struct<e: date>>"),
        ("`a b` string, class int, __x int, _asdict int", "`a b` string, class int, __x int, _asdict int"),
        ("`ﬁ` string, `a``b` int, `a.b` int", "`ﬁ` string, `a``b` int, `a.b` int"),
    ],
)
def test_good_ddl(ddl: str, canonical: str) -> None:
    schema = Schema.parse(ddl)
    assert schema.ddl == canonical
    assert Schema.parse(schema.ddl) == schema
    assert Schema.parse(schema) is schema


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("", "has no columns"),
        ("   ", "has no columns"),
        ("a", "ends where"),
        ("a string,", "ends after a comma"),
        (",a string", "type"),
        ("a string b string", "','"),
        ("a strin", "Did you mean 'string'"),
        ("a varchar(3)", "not supported"),
        ("a decimal(39,2)", "has no such size"),
        ("a decimal(3,4)", "has no such size"),
        ("a decimal(x)", "a number was expected"),
        ("a struct<>", "no members"),
        ("a struct<b int", "ends where"),
        ("a map<string>", "','"),
        ("a array", "ends where '<'"),
        ("a array<int", "ends where '>'"),
        ("a array<>", "not a type"),
        ("a string not", "ends where"),
        ("a string not nul", "'not' must be followed by 'null'"),
        ("a string, a int", "there twice"),
        ("1a string", "type"),
        ("`` string", "cannot be a column name"),
        ("a string comment 'x'", "','"),
        ("a int; drop table x", "','"),
    ],
)
def test_bad_ddl(ddl: str, problem: str) -> None:
    with pytest.raises(SchemaError) as error:
        Schema.parse(ddl)
    assert problem in str(error.value)
    assert error.value.code == "INVALID_SCHEMA"


@pytest.mark.parametrize("given", [None, 5, ["a string"], {"a": "string"}])
def test_what_is_no_text_is_refused(given: object) -> None:
    with pytest.raises(SchemaError, match="describes no schema"):
        Schema.parse(given)


def test_the_number_of_columns_has_a_limit() -> None:
    fields = tuple(Field(f"c{i}", STRING) for i in range(501))
    assert len(Schema(fields[:500])) == 500
    with pytest.raises(SchemaError, match="limit is 500"):
        Schema(fields)


def test_single_types() -> None:
    assert parse_type("array<bigint>") == array_of(BIGINT)
    assert parse_type("FLOAT") == FLOAT
    for bad in ("", "int int", "array<int>>", "a int"):
        with pytest.raises(SchemaError):
            parse_type(bad)


def test_columns_are_found_by_name() -> None:
    schema = Schema.parse("a string, at timestamp not null")
    assert schema.names == ("a", "at")
    assert "a" in schema
    assert "b" not in schema
    assert schema.field("at") == Field("at", TIMESTAMP, False)
    with pytest.raises(UnknownColumn, match="Did you mean 'at'"):
        schema.field("att")


def test_equal_schemas_share_their_record_class() -> None:
    assert Schema.parse("a int").record_type is Schema.parse(" a  INTEGER ").record_type
    assert Schema.parse("a int").record_type is not Schema.parse("a int not null").record_type
