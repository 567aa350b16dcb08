"""Outputs and inputs of units: dealing out, runs of empty blocks, event time and idleness in headers, the audit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import penstock as ps
from penstock.dataset import Block, Mark
from penstock.engine.edges import READER, EdgeOutput, LocalInput, Span
from penstock.engine.event_time import Origin
from penstock.engine.snapshot import InputState
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan

SCHEMA = "k string, n bigint"


def plan_of(parallelism: int, **sizes: int) -> Plan:
    source = ps.records([("a", 1)], schema="k string, n bigint")
    return Plan.of(
        ps.stream("in", source)
        .key_by("k")
        .map(lambda r: (r.k, r.n), schema="k string, n bigint")
        .to(ps.memory())
        .graph(),
        replace(Options.of(parallelism=parallelism), **sizes),
    )


class Play:
    """The shuffle of a plan, written by instance 0."""

    def __init__(self, parallelism: int = 3, **sizes: int) -> None:
        plan = plan_of(parallelism, **sizes)
        (edge,) = [each for each in plan.edges if each.keys]
        self.output = EdgeOutput(edge, plan, 0)
        self.record = edge.schema.record_type
        self.span = Span()
        self.next_id = 0

    def emit(
        self, *keys: str, event_time_us: int | None = None, idle: bool | None = None, mark: Mark = Mark.NONE
    ) -> None:
        self.span.first = self.span.last = self.next_id
        self.span.due_us, self.span.event_time_us, self.span.idle, self.span.mark = 5, event_time_us, idle, mark
        self.output.emit(self.span, [self.record(key, i) for i, key in enumerate(keys)])
        self.next_id = self.span.last + 1

    def blocks(self, consumer: int) -> list[Block]:
        return list(self.output.logs[consumer].inspect().blocks)


def test_a_key_always_goes_to_the_same_consumer_and_nothing_is_lost() -> None:
    play = Play()
    keys = [f"k{i}" for i in range(50)]
    play.emit(*keys)
    play.emit(*keys)
    owners: dict[str, set[int]] = {}
    seen: Counter[str] = Counter()
    for consumer in range(3):
        for block in play.blocks(consumer):
            for row in block.rows or []:
                owners.setdefault(row.k, set()).add(consumer)
                seen[row.k] += 1
    assert all(len(each) == 1 for each in owners.values())
    assert seen == Counter(dict.fromkeys(keys, 2))
    assert play.output.records_written == 100


def test_what_is_too_heavy_for_a_block_is_cut_into_several_with_ids_of_their_own() -> None:
    play = Play(block_bytes=1_000)
    play.emit("before")
    keys = [f"k{i}" + "x" * 100 for i in range(60)]
    play.emit(*keys, event_time_us=50, idle=True)
    pieces = [play.blocks(consumer) for consumer in range(3)]
    assert all(len(each) >= 2 for each in pieces), "the case tests nothing where nothing is cut"
    for blocks in pieces:
        assert blocks[0].first == 0
        assert all(after.first == before.last + 1 for before, after in pairwise(blocks)), "ids follow each other"
        assert all(0 < block.size_bytes <= 1_100 for block in blocks if len(block.rows or []) > 1)
        cut = [block for block in blocks if block.rows and block.rows[0].k != "before"]
        assert [(block.event_time_us, block.idle) for block in cut] == [(None, None)] * (len(cut) - 1) + [(50, True)]
        assert {block.due_us for block in cut} == {5}
    rows = Counter(row.k for blocks in pieces for block in blocks for row in block.rows or [])
    assert rows == Counter(["before", *keys])
    assert play.output.records_written == 61
    play.emit(mark=Mark.EPOCH)
    last = {play.blocks(consumer)[-1].last for consumer in range(3)}
    assert last == {play.next_id - 1}, "at a marker all logs are at the same id"


def test_a_record_that_is_larger_than_a_block_is_one_of_its_own() -> None:
    play = Play(1, block_bytes=10)
    play.emit("a" * 100, "b" * 100, "c" * 100)
    assert [[row.k[0] for row in block.rows or []] for block in play.blocks(0)] == [["a"], ["b"], ["c"]]
    assert [(block.first, block.last) for block in play.blocks(0)] == [(0, 0), (1, 1), (2, 2)]


def test_packed_parts_are_blocks_of_their_own() -> None:
    play = Play(2)
    play.emit()
    play.span.first = play.span.last = play.next_id
    play.span.event_time_us = 9
    play.output.emit_parts(play.span, {0: [(2, b"12"), (1, b"345")]})
    assert (play.span.first, play.span.last) == (1, 2)
    blocks = play.blocks(0)
    assert [(b.first, b.last, b.count, b.packed, b.size_bytes, b.event_time_us) for b in blocks] == [
        (0, 1, 2, b"12", 2, None),
        (2, 2, 1, b"345", 3, 9),
    ]
    assert play.blocks(1) == []
    play.output.announce()
    assert [(b.first, b.last, b.event_time_us) for b in play.blocks(1)] == [(0, 2, 9)]


def test_a_log_is_full_by_bytes_and_wants_an_epoch() -> None:
    play = Play(1, queue_bytes=10_000)
    (log,) = play.output.logs
    for _ in range(9):
        play.emit("x" * 1_000)
    assert log.has_room
    play.emit("x" * 1_000)
    assert not log.has_room
    for _ in range(10):
        log.read(READER)
    log.consume(READER, 9)
    assert log.has_room, "what is consumed waits no longer"
    assert not play.output.is_filling
    for _ in range(32):
        play.emit("x" * 1_000)
    assert play.output.is_filling, "but it is kept"


def test_a_run_of_empty_blocks_is_covered_by_the_next_one() -> None:
    play = Play()
    play.emit("a")
    owner = next(i for i in range(3) if play.blocks(i))
    other = (owner + 1) % 3
    for _ in range(4):
        play.emit("a")
    assert play.blocks(other) == []
    play.output.announce()
    play.output.announce()
    (block,) = play.blocks(other)
    assert (block.first, block.last, block.count) == (0, 4, 0), "and announced once"
    play.emit(mark=Mark.EPOCH)
    assert [(each.first, each.last, each.mark) for each in play.blocks(other)][-1] == (5, 5, Mark.EPOCH)


def test_event_time_of_empty_blocks_is_not_lost() -> None:
    play = Play()
    play.emit("a", event_time_us=50)
    play.emit("a")
    owner = next(i for i in range(3) if play.blocks(i))
    play.output.announce()
    (block,) = play.blocks((owner + 1) % 3)
    assert block.event_time_us == 50


def test_idleness_is_told_to_all_at_once() -> None:
    play = Play()
    play.emit(idle=True)
    play.emit()
    for consumer in range(3):
        assert [each.idle for each in play.blocks(consumer)] == [True]
    play.emit(idle=False)
    assert [each.idle for each in play.blocks(0)] == [True, False]


def test_an_input_counts_what_it_reads_and_finds_blocks_out_of_order() -> None:
    play = Play(1)
    play.emit("a", "b")
    play.emit("c")
    source = LocalInput(play.output.logs[0], frozenset([0]))
    assert source.queued_records() == 3
    for _ in range(2):
        source.audit(source.pop())
    assert source.peek() is None
    assert (source.records_read, source.disordered_blocks) == (3, 0)
    source.audit(Block(7, 7, 1))
    assert source.disordered_blocks == 1
    state = source.state()
    assert (state.next_id, state.records_read, state.ended) == (8, 3, False)


def test_a_restored_input_goes_on_where_it_stood() -> None:
    play = Play(1)
    play.emit("a")
    play.emit("b")
    log = play.output.logs[0]
    log.read(READER)
    log.consume(READER, 0)
    source = LocalInput(
        log, frozenset([0, 1]), 5, InputState(next_id=1, event_time_us=30, idle_lanes=[0], ended=False, records_read=1)
    )
    assert (source.event_time_us, source.is_idle, source.records_read) == (30, False, 1)
    source.hear(Origin(0, 1, 20, idle=True))
    assert (source.event_time_us, source.is_idle, source.state().idle_lanes) == (30, True, [0, 1])
    source.hear(Origin(0, 0, 40, idle=False))
    assert (source.event_time_us, source.is_idle) == (40, False)
    source.audit(source.pop())
    assert source.disordered_blocks == 0
