"""The result of a micro-batch that Spark transforms: whole when one attempt of each task is, whatever else has come."""

from __future__ import annotations

import pytest

from penstock.protocol.queries import Answer, Brought, Piece
from penstock.runtime.gathered import Gathered


def piece(gathered: Gathered, task: int, number: int) -> None:
    gathered.take(Piece(request=1, task=task, number=number), [f"{task}.{number}".encode()])


def brought(gathered: Gathered, task: int, part: int, pieces: int, outputs: int = 2) -> None:
    gathered.take(Brought(request=1, task=task, part=part, pieces=pieces, outputs=outputs))


def test_one_whole_attempt_of_each_task_is_the_result() -> None:
    gathered = Gathered()
    piece(gathered, 7, 0)
    brought(gathered, 7, 1, 1)
    assert gathered.whole() is None, "task 0 is missing"
    piece(gathered, 5, 0)  # of an attempt that was lost
    piece(gathered, 8, 1)
    brought(gathered, 8, 0, 2)
    assert gathered.whole() is None, "a piece is missing"
    piece(gathered, 8, 0)
    assert gathered.whole() == [b"8.0", b"8.1", b"7.0"]
    brought(gathered, 9, 0, 0)
    assert gathered.whole() == [b"8.0", b"8.1", b"7.0"], "another attempt changes nothing"


def test_tasks_without_rows_have_a_result_too() -> None:
    gathered = Gathered()
    brought(gathered, 7, 0, 0, outputs=1)
    assert gathered.whole() == []


def test_an_answer_does_not_make_up_for_a_piece_that_was_lost() -> None:
    gathered = Gathered()
    piece(gathered, 7, 0)
    gathered.take(Answer(request=1, pieces={}, outputs=1))
    assert gathered.answered
    assert gathered.whole() is None
    brought(gathered, 7, 0, 1, outputs=1)
    assert gathered.whole() == [b"7.0"]


def test_the_answer_names_the_attempts_where_tasks_do_not() -> None:
    gathered = Gathered()
    for task in (3, 4, 5):
        piece(gathered, task, 0)
    assert gathered.whole() is None, "before the answer nobody knows which of them count"
    gathered.take(Answer(request=1, pieces={5: 1, 3: 2}))
    assert gathered.whole() is None
    piece(gathered, 3, 1)
    assert gathered.whole() == [b"3.0", b"3.1", b"5.0"]


def test_a_failure_is_told() -> None:
    with pytest.raises(RuntimeError, match="no such customer"):
        Gathered().take(Answer(request=1, pieces={}, error="no such customer"))
