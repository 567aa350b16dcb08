"""What another process has done with an item, added to the figures of the operations and of the source."""

from __future__ import annotations

from penstock.engine.chain import Chain, SinkOperator
from penstock.engine.inputs import Input, Readers
from penstock.engine.line import Item
from penstock.protocol import slots as s


def count_away(chain: Chain, source: Input, item: Item, done: s.Done, now_us: int) -> None:
    """Add what a slot did to the operations' figures."""
    due_us, first = item.due_us, max(item.range.first, 0)
    if item.range.first < 0:
        assert isinstance(source, Readers)
        source.count_away(item.count, due_us, item.came_us, item.cut_us, done)
    entered_us = done.began_us + done.source_ns // 1000
    for index, figures in enumerate(done.stages, start=first):
        stage = chain.stages[index]
        stats, counts, count = stage.stats, stage.counts, figures.records_in
        if not count:
            continue
        stats.records_in += count
        stats.records_out += figures.records_out
        stats.blocks += 1
        stats.busy_ns += figures.busy_ns
        stats.fallbacks += figures.fallbacks
        counts.skipped += figures.skipped
        counts.retried += figures.retried
        counts.dead_letters += figures.dead_letters
        # A sink has its records when its writer has them, which is now.
        left_us = now_us if isinstance(stage.operator, SinkOperator) else figures.done_us
        stats.latency_us.record(left_us - due_us, count)
        if index == item.range.first:
            came_us = max(item.came_us, due_us)
            stats.entered_us += (came_us - due_us) * count
            stats.wait_us += (item.cut_us - came_us) * count
            stats.schedule_us += (done.began_us - item.cut_us) * count
        else:
            stats.entered_us += (entered_us - due_us) * count
        stats.left_us += (left_us - due_us) * count
        entered_us = left_us
