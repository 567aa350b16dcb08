"""Errors: each with a code and a text that helps, and whole after a journey between processes."""

from __future__ import annotations

import copy
import pickle
import traceback
from typing import Any

import pytest

import penstock as ps
from penstock import errors
from penstock.errors import PenstockError

EXAMPLES = [
    PenstockError("what.", operation="op", hint="do this."),
    errors.UnknownColumn(column="pirce", available=["price", "n"], operation="filter"),
    errors.TypeMismatch(what="text is no number."),
    errors.SchemaError(ddl="a strin", problem="bad"),
    errors.InvalidText(text="x >", problem="a part is missing here", line=1, column=3),
    errors.InvalidOption(option="rate", given=-1, allowed="above 0"),
    errors.InvalidGraph("cycle.", operation="a"),
    errors.InterfaceMismatch(kind="queue", module="theirs", wanted=9, oldest=1, newest=1),
    errors.NotSerializable(operation="map", cause=TypeError("lock")),
    errors.SourceMissing(path="in.jsonl"),
    errors.SourceUnreadable(path="a.gz", cause="its gzip data are damaged"),
    errors.SourceChanged(path="a.jsonl", problem="its first line has changed"),
    errors.SourceFailed(source="postgres", cause="connection refused"),
    errors.CheckpointUnavailable(place="s3://bucket/job", cause="no answer"),
    errors.BadRecord("bad."),
    errors.ArithmeticFailed(what="overflow."),
    errors.OperationFailed(operation="map", cause="ValueError: x", record="{}", user_traceback="Traceback\n  user"),
    errors.SinkFailed(sink="files", cause="disk full"),
    errors.OffsetGap(log="a→b", expected=7, got=9),
    errors.LimitExceeded(what="rows", limit=1, got=2),
    errors.ProtocolError("no."),
    errors.PoisonRecord(operation="map", losses=2),
    errors.CheckpointDamaged(path="commits/0000000007.json", cause="its checksum is wrong"),
    errors.CheckpointNotShared(directory="/ck", machine="there"),
    errors.PathNotShared(path="out", directory="/home/me", machine="there", operation="to_files"),
    errors.SessionRefused(["it is too small"]),
    errors.CheckpointMismatch("the pipeline has changed.", hint="Start anew."),
    errors.CheckpointInUse(place="checkpoint", cause="is in use by job 'a'", hint="Wait."),
    errors.CheckpointFenced(place="checkpoint", attempt=1, newer=2),
    errors.PortOccupied(address="127.0.0.1:1"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_travel_whole(error: PenstockError) -> None:
    for journey in (lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy):
        back = journey(error)
        assert type(back) is type(error)
        assert str(back) == str(error)
        assert back.__dict__ == error.__dict__
        assert back.args == error.args
    assert f"[{error.code}]" in str(error)


def test_codes_are_distinct() -> None:
    kinds = [PenstockError, *PenstockError.__subclasses__()]
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_every_class_has_an_example_or_a_plain_constructor() -> None:
    covered = {type(error) for error in EXAMPLES}
    # Others may be loaded by now that live elsewhere, such as the benchmarks' own.
    own = [kind for kind in PenstockError.__subclasses__() if kind.__module__ == PenstockError.__module__]
    assert len(own) > 10
    for kind in own:
        if kind not in covered:
            assert "what" in str(kind("what"))


def test_texts() -> None:
    unknown = errors.UnknownColumn(column="pirce", available=["price", "n"], operation="filter")
    assert str(unknown) == (
        "[UNKNOWN_COLUMN] operation 'filter': there is no column 'pirce'. Columns here: price, n. Did you mean 'price'?"
    )
    failed = errors.OperationFailed(operation="map", cause="ValueError: x", record="{}", user_traceback="Traceback\n")
    assert str(failed) == "[OPERATION_FAILED] operation 'map': ValueError: x on record {}.\nTraceback"
    failed.place("events", 3, 4711)
    assert "x on record {} (source 'events', partition 3, offset 4711).\nTraceback" in str(failed)


def test_the_first_operation_named_stays() -> None:
    error = errors.BadRecord("bad.")
    assert error.at("first") is error
    assert error.at("second").operation == "first"


def test_only_the_users_own_code_is_below_an_error() -> None:
    stream = ps.stream("rows", ps.records([(0, {"a": 1})], schema="n bigint, s struct<a: int>"))

    def invert(r: Any) -> int:
        return int(1 // r.n)

    with pytest.raises(PenstockError) as raised:
        stream.map(invert, schema="n bigint").take()
    line, *below = str(raised.value).splitlines()
    assert line.startswith("[OPERATION_FAILED] operation 'invert'")
    assert '{"n":0,"s":{"a":1}}' in line, "structs are shown with their names"
    assert below[0] == "Traceback (most recent call last):"
    assert "penstock/operators" not in str(raised.value)
    assert len(traceback.extract_tb(raised.value.__traceback__)) <= 3
    with pytest.raises(PenstockError) as raised:
        stream.filter("m > 3")
    assert len(traceback.extract_tb(raised.value.__traceback__)) <= 4
    line, *below = raised.value._render_traceback_()
    assert line.startswith("UnknownColumn: [UNKNOWN_COLUMN] operation 'filter': there is no column 'm'.")
    assert [each.splitlines()[1].strip() for each in below] == ['stream.filter("m > 3")']
