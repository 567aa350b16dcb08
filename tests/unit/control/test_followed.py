"""The driver hears how far the instances of a sink have come, and hands epochs over in order."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.control.deliveries import Deliveries
from penstock.errors import OperationFailed, ProtocolError
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.runtime.attempts import Attempt
from penstock.runtime.committing import CommitWriter
from penstock.runtime.job import plan_of
from penstock.spark import sinks
from penstock.types import Schema
from waiting import WAIT_S

SCHEMA = Schema.parse("n bigint")


class Session:
    """Makes no DataFrames."""

    def createDataFrame(self, table: Any) -> list[int]:
        return [row["n"] for row in table.to_pylist()]


class Sent:
    """A sink of two instances, and what its function was called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, state: dict[str, object] | None = None) -> None:
        monkeypatch.setattr(sinks, "any_session", Session)
        self.called: list[tuple[int, list[int]]] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.sink = ps.spark_sink(self._function)
        self.deliveries = Deliveries(laid_out(self.sink))
        if state is not None:
            self.sink.resume(state)

    def _function(self, rows: Any, epoch: int) -> None:
        assert self.goes_on.wait(WAIT_S)
        if -1 in rows:
            raise ValueError("no such row")
        self.called.append((epoch, rows))

    def rows(self, instance: int, epoch: int, *numbers: int, part: int = 0) -> int:
        packed = msgspec.msgpack.encode([SCHEMA.record_type(n) for n in numbers])
        who: Any = {"worker": instance, "incarnation": 1, "sink": "out", "instance": instance}
        return self.deliveries.take(m.Deliver(**who, epoch=epoch, part=part, rows=packed))

    def said(self, instance: int, epoch: int) -> None:
        who: Any = {"worker": instance, "incarnation": 1, "sink": "out", "instance": instance}
        self.deliveries.take(m.Delivered(**who, epoch=epoch))


def laid_out(sink: ps.connectors.Sink, **options: Any) -> Plan:
    stream = ps.stream("in", ps.records([(1,)], schema="n bigint", partitions=2))
    return plan_of(stream.to(sink, name="out"), parallelism=2, **options)


def test_an_epoch_is_handed_over_when_all_instances_have_delivered_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch)
    sent.rows(0, 1, 10)
    sent.said(0, 1)
    sent.rows(0, 2, 20)
    sent.said(0, 2)
    sent.rows(1, 1, 11)
    assert sent.rows(1, 1, 11) == 0  # again, after a crash
    sent.rows(1, 1, 12, part=1)
    sent.said(1, 1)
    sent.sink.finish()
    assert sent.called == [(1, [10, 11, 12])]
    sent.said(1, 3)  # nothing of epoch 2, and epoch 3 is committed too
    sent.said(0, 3)
    assert sent.sink.settle(3) == {"done": 3}
    assert sent.called == [(1, [10, 11, 12]), (2, [20])]
    sent.sink.release()


def test_rows_after_the_word_that_there_are_no_more_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch)
    sent.said(0, 2)
    sent.said(1, 2)
    with pytest.raises(ProtocolError, match=r"operation 'out'.*epoch 2"):
        sent.rows(0, 2, 1)


def test_a_resumed_run_hands_over_what_the_record_does_not_call_done(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch, {"done": 5, "epoch": 7, "operation": "out"})
    for epoch in (5, 6, 7):
        sent.rows(0, epoch, epoch)
    sent.said(0, 7)
    sent.said(1, 7)
    sent.sink.finish()
    assert sent.called == [(6, [6]), (7, [7])]


def test_the_next_epoch_is_recorded_when_the_function_has_returned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from penstock.runtime.checkpoints import new_record

    sent = Sent(monkeypatch)
    attempt = Attempt.begin(laid_out(sent.sink, checkpoint=str(tmp_path)))
    writer = CommitWriter(attempt)

    def record(epoch: int) -> None:
        writer.submit(
            new_record(
                job="job", job_id=attempt.plan.job_id, attempt=attempt.number, epoch=epoch, generation=0, start_us=0,
                final=False, anchors=[], sinks={"out": {}}, snapshots=[], outputs=[],
            )
        )  # fmt: skip

    def recorded() -> int:
        last = attempt.store.last_commit()
        return last.epoch if last is not None else 0

    def wait_for(epoch: int) -> None:
        found: list[int] = []
        while epoch not in found:
            found += writer.recorded()

    record(1)
    wait_for(1)
    sent.goes_on.clear()
    record(2)
    sent.rows(0, 1, 10)
    sent.said(0, 1)
    sent.said(1, 1)
    assert recorded() == 1
    sent.goes_on.set()
    wait_for(2)
    assert sent.called == [(1, [10])]
    last = attempt.store.last_commit()
    assert last is not None
    assert last.sinks == {"out": {"done": 1}}
    sent.rows(1, 2, -1)
    sent.said(0, 2)
    sent.said(1, 2)
    record(3)
    with pytest.raises(OperationFailed, match=r"(?s)'out': ValueError: no such row.*epoch 2.*Traceback.*in _function"):
        wait_for(3)
    assert recorded() == 2
    sent.sink.release()
    writer.close()
    attempt.release()
