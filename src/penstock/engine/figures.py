"""Figures of what is not counted where it is done: what other processes have computed, edges, waiting for room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.dataset import ChannelId, Sender
from penstock.engine.chain import Chain, ClockNs, SinkOperator
from penstock.engine.edges import EdgeOutput, RemoteInput
from penstock.engine.heat import together
from penstock.engine.inputs import Input
from penstock.engine.line import Item
from penstock.operators import Form
from penstock.operators.alternatives import AlternativesOperator
from penstock.pipeline.plan import Plan
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s

if TYPE_CHECKING:
    from penstock.engine.unit import Unit


class Stopwatch:
    """Adds up how long something lasts, from one moment at which it is noticed to another."""

    __slots__ = ("_clock_ns", "_since_ns", "_total_ns", "is_running")

    def __init__(self, clock_ns: ClockNs) -> None:
        self.is_running = False
        self._clock_ns = clock_ns
        self._since_ns = self._total_ns = 0

    def begin(self) -> None:
        """It lasts from now on, if it did not before."""
        if not self.is_running:
            self.is_running, self._since_ns = True, self._clock_ns()

    def end(self) -> None:
        """It is over."""
        self._total_ns += self._clock_ns() - self._since_ns
        self.is_running = False

    @property
    def total_us(self) -> int:
        """How long it has lasted so far."""
        running_ns = self._clock_ns() - self._since_ns if self.is_running else 0
        return (self._total_ns + running_ns) // 1000


def show_forms(source: Input, chain: Chain, batched: Range) -> None:
    """Show which operations are in batch form."""
    source.show_form((Form.BATCH if -1 in batched else Form.RECORD).value)
    for index, stage in enumerate(chain.stages):
        stage.stats.form = (Form.BATCH if index in batched else Form.RECORD).value


def count_away(chain: Chain, source: Input, item: Item, done: s.Done, now_us: int) -> None:
    """Add what a slot did to the operations' figures."""
    due_us, first = item.due_us, max(item.range.first, 0)
    if item.range.first < 0:
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
        if figures.failures and isinstance(stage.operator, AlternativesOperator):
            stage.operator.failures[item.using.get(index, stage.operator.active)] += figures.failures
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


def edge_figures(
    plan: Plan,
    units: Iterable[Unit],
    outputs: Mapping[tuple[int, int], EdgeOutput],
    senders: Mapping[ChannelId, Sender],
) -> list[m.EdgeFigures]:
    """What every edge has carried, as seen from one worker."""
    totals = {edge.id: m.EdgeFigures(edge=edge.id) for edge in plan.edges}
    for (edge_id, _), output in outputs.items():
        totals[edge_id].records_written += output.records_written
        if output.heat is not None:
            totals[edge_id].samples += output.heat.samples
            totals[edge_id].hottest = together([*totals[edge_id].hottest, *output.heat.hottest()])
    for unit in units:
        if unit.input.is_source:
            continue
        edges = [edge for edge in plan.inputs(unit.spec.id) for _ in edge.producers(plan, unit.instance)]
        for edge, each in zip(edges, unit.input.logs, strict=True):
            totals[edge.id].records_read += each.records_read
            totals[edge.id].blocks_disordered += each.disordered_blocks
            if isinstance(each, RemoteInput):
                totals[edge.id].blocks_duplicate += each.receiver.duplicate_blocks
                totals[edge.id].blocks_refused += each.receiver.refused_blocks
    for channel, sender in senders.items():
        totals[channel.edge].blocks_resent += sender.resent_blocks
    return list(totals.values())
