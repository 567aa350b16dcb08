"""The replayable log against a model that is a list: appends, reads, replays, bounds and truncation in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.dataset import Block, Log, Mark
from penstock.dataset.sizes import RETAINED_QUEUES
from penstock.errors import OffsetGap, ProtocolError

READERS = ("left", "right")
reader = st.sampled_from(READERS)


class LogMachine(RuleBasedStateMachine):
    """The model keeps every block ever appended; positions are indexes into it."""

    @initialize(unread_max=st.integers(1, 12), retained_max=st.integers(1, 20), bytes_max=st.integers(1, 300))
    def begin(self, unread_max: int, retained_max: int, bytes_max: int) -> None:
        self.log = Log(
            "model",
            READERS,
            unread_records_max=unread_max,
            retained_records_max=retained_max,
            unread_bytes_max=bytes_max,
        )
        self.unread_max, self.retained_max, self.bytes_max = unread_max, retained_max, bytes_max
        self.blocks: list[Block] = []
        self.base = 0
        self.next = dict.fromkeys(READERS, 0)
        self.consumed = dict.fromkeys(READERS, 0)
        self.epoch = 1
        self.committed = 0
        self.ended = False

    # --- the model ----------------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        return self.blocks[-1].last + 1 if self.blocks else 0

    def weight(self, first: int, last: int) -> int:
        return sum(block.count or 1 for block in self.blocks[first:last])

    def size(self, first: int, last: int) -> int:
        return sum(block.size_bytes for block in self.blocks[first:last])

    # --- what may happen ----------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.ended)
    @rule(
        count=st.integers(0, 5),
        span=st.integers(1, 3),
        size=st.sampled_from([1, 10, 1000]),
        mark=st.sampled_from([Mark.NONE] * 6 + [Mark.EPOCH]),
    )
    def append(self, count: int, span: int, size: int, mark: Mark) -> None:
        first = self.next_id()
        block = Block(first, first + span - 1, self.epoch, list(range(count)) or None, None, count, mark=mark)
        block.size_bytes = size * count
        self.log.append(block)
        self.blocks.append(block)
        self.epoch += mark is Mark.EPOCH

    @precondition(lambda self: not self.ended and len(self.blocks) > 8)
    @rule()
    def end(self) -> None:
        block = Block(self.next_id(), self.next_id(), self.epoch, mark=Mark.END)
        self.log.append(block)
        self.blocks.append(block)
        self.ended = True

    @precondition(lambda self: self.ended)
    @rule()
    def nothing_follows_the_end(self) -> None:
        with pytest.raises(ProtocolError):
            self.log.append(Block(self.next_id(), self.next_id(), self.epoch))

    @precondition(lambda self: not self.ended)
    @rule(off=st.sampled_from([-2, -1, 1, 2]))
    def gaps_are_refused(self, off: int) -> None:
        first = self.next_id() + off
        with pytest.raises(OffsetGap):
            self.log.append(Block(first, first + 1, self.epoch))
        with pytest.raises(OffsetGap):
            self.log.append(Block(self.next_id(), self.next_id() - 1, self.epoch))

    @rule(who=reader)
    def read(self, who: str) -> None:
        at = self.next[who]
        expected = self.blocks[at] if at < len(self.blocks) else None
        assert self.log.peek(who) is expected
        assert self.log.read(who) is expected
        self.next[who] += expected is not None

    @precondition(lambda self: any(at > self.base for at in self.next.values()))
    @rule(data=st.data(), size=st.sampled_from([0, 3, 2000]))
    def weigh(self, data: st.DataObject, size: int) -> None:
        who = data.draw(st.sampled_from([who for who in READERS if self.next[who] > self.base]))
        self.log.weigh(who, size)
        assert self.blocks[self.next[who] - 1].size_bytes == size

    @rule(who=reader, share=st.floats(0, 1))
    def consume(self, who: str, share: float) -> None:
        last = round(share * (self.next_id() + 1)) - 1
        self.log.consume(who, last)
        while self.consumed[who] < self.next[who] and self.blocks[self.consumed[who]].last <= last:
            self.consumed[who] += 1

    @rule(who=reader, share=st.floats(0, 1))
    def seek(self, who: str, share: float) -> None:
        at = self.base + round(share * (len(self.blocks) - self.base))
        block_id = self.blocks[at].first if at < len(self.blocks) else self.next_id()
        self.log.seek(who, block_id)
        self.next[who] = at
        self.consumed[who] = min(self.consumed[who], at)

    @rule(who=reader, data=st.data())
    def seek_to_nowhere(self, who: str, data: st.DataObject) -> None:
        good = {block.first for block in self.blocks[self.base :]} | {self.next_id()}
        bad = data.draw(st.integers(-2, self.next_id() + 3).filter(lambda i: i not in good))
        with pytest.raises(OffsetGap):
            self.log.seek(who, bad)

    @rule(who=reader, behind=st.integers(-1, 3))
    def seek_after_epoch(self, who: str, behind: int) -> None:
        epoch = max(0, self.epoch - behind)
        at = self.base
        while at < len(self.blocks) and self.blocks[at].epoch <= epoch:
            at += 1
        position = self.log.seek_after_epoch(who, epoch)
        assert position == (self.blocks[at].first if at < len(self.blocks) else self.next_id())
        self.next[who] = self.consumed[who] = at

    @rule(behind=st.integers(-1, 2))
    def commit(self, behind: int) -> None:
        epoch = max(0, self.epoch - behind)
        self.log.commit(epoch)
        self.committed = max(self.committed, epoch)
        while self.base < min(self.consumed.values()) and self.blocks[self.base].epoch <= self.committed:
            self.base += 1

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def it_equals_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        kept = self.blocks[self.base :]
        assert log.next_id == self.next_id()
        assert log.bounds == (kept[0].first if kept else self.next_id(), self.next_id())
        assert log.retained_records == self.weight(self.base, len(self.blocks))
        assert log.committed_epoch == self.committed
        unread = {who: self.weight(self.consumed[who], len(self.blocks)) for who in READERS}
        assert {who: log.unread_records(who) for who in READERS} == unread
        assert log.retained_bytes == self.size(self.base, len(self.blocks))
        unread_bytes = {who: self.size(self.consumed[who], len(self.blocks)) for who in READERS}
        retained_bytes_max = RETAINED_QUEUES * self.bytes_max
        assert log.has_room == (
            max(unread.values()) < self.unread_max
            and log.retained_records < self.retained_max
            and max(unread_bytes.values()) < self.bytes_max
            and log.retained_bytes < retained_bytes_max
        )
        assert log.is_filling == (
            2 * log.retained_records > self.retained_max or 2 * log.retained_bytes > retained_bytes_max
        )
        for who in READERS:
            at = self.next[who]
            assert log.position(who) == (self.blocks[at].first if at < len(self.blocks) else self.next_id())


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_log_needs_a_reader() -> None:
    with pytest.raises(ProtocolError):
        Log("nobody", [])


def test_a_replay_gives_the_same_blocks() -> None:
    log = Log("replay", ["r"])
    blocks: list[Any] = [Block(i, i, 1 + i // 3, [i], None, 1) for i in range(6)]
    for block in blocks:
        log.append(block)
    assert [log.read("r") for _ in blocks] == blocks
    log.consume("r", 5)
    log.commit(1)
    assert log.bounds == (3, 6)
    log.seek("r", 3)
    assert log.unread_records("r") == 3
    assert [log.read("r") for _ in range(4)] == [*blocks[3:], None]


def test_a_restored_producer_goes_on_where_it_was() -> None:
    log = Log("restored", ["r"], first_id=40)
    assert (log.next_id, log.bounds, log.position("r"), log.peek("r")) == (40, (40, 40), 40, None)
    with pytest.raises(OffsetGap):
        log.append(Block(0, 0, 3))
    log.append(Block(40, 41, 3, ["x"], None, 1))
    assert log.position("r") == 40
    assert log.next_id == 42
    log.seek("r", 42)
    with pytest.raises(OffsetGap):
        log.seek("r", 39)


def test_a_replay_begins_with_the_first_block_after_the_epoch() -> None:
    log = Log("replay", ["r"], unread_records_max=4)
    for i in range(9):
        mark = Mark.EPOCH if i % 3 == 2 else Mark.NONE
        log.append(Block(i, i, 1 + i // 3, None if mark else [i], None, 0 if mark else 1, mark=mark))
        log.read("r")
        log.consume("r", i)
    log.commit(1)
    assert log.seek_after_epoch("r", 1) == 3
    assert log.unread_records("r") == 6
    assert not log.has_room, "what is replayed counts against the bound again"
    assert [log.read("r").first for _ in range(6)] == [3, 4, 5, 6, 7, 8]  # type: ignore[union-attr]
    assert log.seek_after_epoch("r", 3) == 9
    assert log.unread_records("r") == 0
    assert log.seek_after_epoch("r", 0) == 3, "what is committed and consumed is gone"
