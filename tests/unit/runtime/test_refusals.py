"""What is refused before Spark is started: each with a code, the operation's name and what to do."""

from __future__ import annotations

import threading

import pytest

import penstock as ps
from penstock.errors import InvalidGraph, InvalidOption, NotSerializable, SourceMissing, TypeMismatch
from penstock.runtime.job import plan_of


@pytest.fixture
def numbers() -> ps.Stream:
    return ps.stream("numbers", ps.records([(1,)], schema="n bigint"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"parallelism": 0}, "parallelism=0"),
        ({"parallelism": -1}, "parallelism=-1"),
        ({"parallelism": 1_000_000}, "1 to 256"),
        ({"parallelism": True}, "parallelism=True"),
        ({"paralelism": 2}, "Did you mean 'parallelism'"),
        ({"epoch": "0s"}, "epoch='0s'"),
        ({"epoch": "soon"}, "epoch='soon'"),
        ({"epoch": "1ms"}, "10ms or longer"),
        ({"idle": -1}, "idle=-1"),
        ({"master": "mesos://x"}, "spark://HOST:PORT"),
        ({"master": "local[2]", "parallelism": 3}, "at least 3 slots"),
        ({"name": "a/b"}, "name='a/b'"),
        ({"queue_records": 0}, "queue_records=0"),
    ],
)
def test_absurd_options(numbers: ps.Stream, options: dict, told: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        plan_of(numbers.to(ps.memory()), **options)
    assert told in str(raised.value)


def test_a_function_that_cannot_be_sent_is_named(numbers: ps.Stream) -> None:
    lock = threading.Lock()

    def locked(record: object) -> tuple[int]:
        with lock:
            return (record.n,)

    with pytest.raises(NotSerializable, match="operation 'guard'"):
        plan_of(numbers.map(locked, schema="n bigint", name="guard").to(ps.memory()))


def test_nothing_to_run() -> None:
    with pytest.raises(InvalidGraph, match="nothing to run"):
        plan_of()


def test_a_stream_without_a_sink(numbers: ps.Stream) -> None:
    with pytest.raises(TypeMismatch, match=r"\.to\(…\)"):
        plan_of(numbers)


def test_dead_letters_need_a_place(numbers: ps.Stream) -> None:
    pipeline = numbers.map(lambda r: (r.n,), schema="n bigint", on_error="dead_letter").to(ps.memory())
    with pytest.raises(InvalidGraph, match=r"dead_letters=ps\.files"):
        plan_of(pipeline)
    plan_of(pipeline, dead_letters=ps.memory())


def test_a_missing_file_names_its_source(tmp_path) -> None:
    lines = ps.stream("lines", ps.json_files(str(tmp_path / "nowhere")))
    with pytest.raises(SourceMissing, match=r"operation 'lines'.*nowhere"):
        plan_of(lines.to(ps.memory()))
