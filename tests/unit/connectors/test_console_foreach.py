"""The console and the callback sink."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import cloudpickle

from penstock.connectors import WriterContext, console, foreach
from penstock.errors import InvalidOption, SinkFailed
from penstock.types import Schema

_SCHEMA = Schema.parse("k string, t timestamp")
_CONTEXT = WriterContext(job="test", operation="out", instance=0, instances=1)


def _rows(*keys: str) -> list[Any]:
    return [_SCHEMA.record_type(key, 0) for key in keys]


def test_console_prints_what_is_delivered(capsys: pytest.CaptureFixture[str]) -> None:
    sink = console()
    writer = cloudpickle.loads(cloudpickle.dumps(sink)).writer(_SCHEMA, _CONTEXT)
    writer.write(_rows("a", "b"))
    writer.prepare(0)
    assert capsys.readouterr().out == ""
    sink.deliver(writer.commit(0), _SCHEMA)
    sink.deliver([], _SCHEMA)
    assert capsys.readouterr().out == "k=a  t=1970-01-01T00:00:00.000000Z\nk=b  t=1970-01-01T00:00:00.000000Z\n"


def test_console_limit(capsys: pytest.CaptureFixture[str]) -> None:
    sink = console(limit=3)
    schema = Schema.parse("k string")
    for keys in ("ab", "cd", "e"):
        sink.deliver([schema.record_type(key) for key in keys], schema)
    assert capsys.readouterr().out == "k=a\nk=b\nk=c\n(no more rows are printed: limit=3)\n"
    with pytest.raises(InvalidOption, match="limit"):
        console(limit=0)


def test_foreach_calls_at_once() -> None:
    seen: list[str] = []
    writer = foreach(lambda record: seen.append(record.k)).writer(_SCHEMA, _CONTEXT)
    writer.write(_rows("a", "b"))
    assert seen == ["a", "b"]
    writer.prepare(0)
    assert writer.commit(0) is None


def test_foreach_failure_names_function_record_and_operation() -> None:
    def send(record: Any) -> None:
        raise ConnectionError("refused")

    writer = foreach(send).writer(_SCHEMA, _CONTEXT)
    with pytest.raises(
        SinkFailed, match=r"operation 'out': sink foreach\(send\): ConnectionError: refused, on .*k='a'"
    ):
        writer.write(_rows("a"))
    with pytest.raises(InvalidOption, match="function"):
        foreach("print")  # type: ignore[arg-type]
