"""A unit whose chain can be run another way in part: orders, hand-overs, and results that come back in order.

The ways and their transitions are in the docstring of `engine/detour.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.base import Sink
from penstock.dataset import Mark, unpack
from penstock.engine.chain import ClockNs, Passed, SinkOperator
from penstock.engine.detour import Detour, Item, Marker, Route
from penstock.engine.edges import EdgeOutput
from penstock.engine.pool import SlotPool
from penstock.engine.unit import Unit
from penstock.operators import Form
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol import slots as s
from penstock.types import Record


@dataclass(frozen=True, slots=True)
class Order:
    """Run the chain this way from the next block on."""

    switch: int
    route: Route | None


@dataclass(slots=True)
class HandOver:
    """A hand-over as one instance saw it."""

    switch: int
    left_us: int
    """When the old way gave its last output."""
    carried_records: int
    """Records that waited at that moment."""
    pause_us: int | None = None


class ReroutableUnit(Unit):
    """A unit that follows orders to run part of its chain elsewhere."""

    def __init__(
        self,
        spec: UnitSpec,
        instance: int,
        plan: Plan,
        outputs: list[EdgeOutput],
        clock_ns: ClockNs,
        pool: SlotPool,
        owner: tuple[int, int],
    ) -> None:
        super().__init__(spec, instance, plan, outputs, clock_ns)
        self.detour: Detour | None = None
        self.hand_overs: list[HandOver] = []
        """Complete ones that have not been told yet."""
        self._pool = pool
        self._owner = owner
        self._order: Order | None = None
        self._hand_over: HandOver | None = None
        self._output_us = 0
        """When records last left the unit; kept up while an order waits."""
        self._ending = False
        """The end is in line."""
        self._tapped: list[Record] | None = None
        self._tap_records = 0

    @abstractmethod
    def waiting_records(self, now_us: int) -> int:
        """Records that wait before the unit."""

    @abstractmethod
    def arrived_records(self, now_us: int) -> int:
        """Records that have come to the unit so far, waiting ones included."""

    @abstractmethod
    def _passed(self, item: Item, event_time_us_max: int | None, now_us: int) -> None:
        """Let event time pass: a micro-batch has come back, it is its turn, and its span is about to be written.

        ``now_us`` is when it was cut: who waits for slots has not been silent.
        """

    @abstractmethod
    def _came_back(self, now_us: int) -> None:
        """A detour is over: silence counts from now on again."""

    @property
    def last_plain(self) -> int:
        """Index of the last operation that is not a sink; -1 if there is none."""
        ops = self.spec.ops
        return len(ops) - 1 - sum(isinstance(each.operation, Sink) for each in ops)

    def tap(self, records: int) -> None:
        """Keep the next records that come to the unit, for a sample."""
        self._tapped, self._tap_records = [], records

    def tapped(self) -> list[Record] | None:
        """Take the sample, once it is complete."""
        if self._tapped is None or len(self._tapped) < self._tap_records:
            return None
        taken, self._tapped = self._tapped, None
        return taken[: self._tap_records]

    def order(self, order: Order) -> None:
        """Take an order; it is followed at the end of the present block."""
        self._order = order

    def take_hand_overs(self) -> list[HandOver]:
        """Take the complete hand-overs; whoever has ended runs nothing, in the old way or the new."""
        taken = self.hand_overs
        self.hand_overs = []
        if self.finished:
            if self._hand_over is not None:
                taken.append(self._hand_over)
            if self._order is not None:
                taken.append(HandOver(self._order.switch, 0, 0))
            self._hand_over = self._order = None
        return taken

    @property
    def _can_settle(self) -> bool:
        """Whether a step would get ahead with the order; where results are awaited, they bring the next one."""
        detour = self.detour
        waits = detour is not None and detour.closing and not detour.is_empty
        return self._order is not None and self.chain.guard is None and not waits and not self._ending

    def _settle(self, now_us: int) -> None:
        """Follow the order, if it can be followed now."""
        order, detour = self._order, self.detour
        if order is None or self.chain.guard is not None or self.finished:
            return
        route = order.route
        if detour is not None:
            if route is not None and not detour.closing and route.same_range(detour.route):
                detour.route = route
                self._begin_hand_over(order, now_us)
                return
            detour.closing = True
            detour.recall()
            if not detour.is_empty or self._ending:
                return
            self.detour = None
            self._came_back(now_us)
        if route is not None:
            cost_ns = self._record_ns(route)
            self.detour = Detour(route, self._pool, self.spec.id, self.instance, self._owner, cost_ns)
        self._show_forms()
        self._begin_hand_over(order, now_us)

    def _record_ns(self, route: Route) -> float:
        """What a record has cost in a range so far; 0 where that is not known."""
        stages = [each.stats for each in self.chain.stages[max(route.first, 0) : route.last + 1]]
        came = stages[0].records_in if stages else 0
        return sum(each.busy_ns for each in stages) / came if came else 0.0

    def _begin_hand_over(self, order: Order, now_us: int) -> None:
        self._order = None
        self._hand_over = HandOver(order.switch, now_us, self.waiting_records(now_us))

    def _output(self, due_us: int, now_us: int) -> None:
        """The new way has given its first output: the pause is over."""
        held = self._hand_over
        if held is not None:
            held.pause_us = max(0, now_us - max(held.left_us, due_us))
            self.hand_overs.append(held)
            self._hand_over = None

    def _nothing_to_do(self, now_us: int) -> None:
        """Nothing waits for the new way: nobody has waited for it either."""
        held = self._hand_over
        if held is not None and not self.waiting_records(now_us) and (self.detour is None or self.detour.is_empty):
            held.pause_us = 0
            self.hand_overs.append(held)
            self._hand_over = None

    def _show_forms(self) -> None:
        route = self.detour.route if self.detour is not None else Route(0, -1)
        for index, stage in enumerate(self.chain.stages):
            away = route.first <= index <= route.last
            stage.stats.form = (Form.BATCH if away else Form.RECORD).value

    # --- what comes back ----------------------------------------------------------------------------------------------

    def _release(self, detour: Detour, now_us: int) -> bool:
        """Let what has come back go on, as far as it is its turn and there is room."""
        worked = False
        while detour.line and self.has_room:
            head = detour.line[0]
            if isinstance(head, Item):
                if head.result is None and head.local is None:
                    break
                detour.line.popleft()
                self._let_through(detour.route, head, now_us)
            else:
                detour.line.popleft()
                self._open_mark(head)
                self._emit(Passed([]))
                self._end_mark(head.mark, head.capture)
            worked = True
        return worked

    def _open_mark(self, marker: Marker) -> None:
        if marker.epoch is not None:
            self._span.epoch = marker.epoch
        if not self.chain.has_event_time:
            self._span.event_time_us_max = None
        self._begin_mark(marker.mark, marker.first, marker.last)

    def _let_through(self, route: Route, item: Item, now_us: int) -> None:
        chain, span = self.chain, self._span
        parts: dict[int, dict[int, tuple[int, bytes]]] = {}
        passed = Passed([])
        after = route.last + 1
        if item.local is not None:
            passed = self._run_here(item)
        else:
            assert item.result is not None
            done, payloads = item.result.done, list(item.result.payloads)
            item.due_us = item.due_us or done.due_us
            self._count(route, item, done, now_us)
            for part in done.parts:
                parts.setdefault(part.edge, {})[part.consumer] = (part.count, payloads.pop(0))
            passed.event_time_us_max = done.event_time_us_max
            if done.carried:
                carried = unpack(payloads.pop(0), self.spec.schema_at(after))
                came = self.spec.schema_at(after).to_rows(carried)
                passed = chain.push(came, item.due_us, after, origin=item.place)
            if done.staged:
                sink = chain.stages[route.last].operator
                assert isinstance(sink, SinkOperator)
                sink.adopt(payloads.pop(0))
        span.due_us = item.due_us
        if item.marker is not None:
            self._open_mark(item.marker)
        span.first, span.last = item.first, item.last
        self._passed(item, passed.event_time_us_max, item.cut_us)
        for output in self.outputs:
            edge = output.edge
            if edge.op_index < route.first:
                output.emit(span, item.sides.get(edge.id, []))
            elif edge.op_index <= route.last and item.local is None:
                output.emit_parts(span, parts.get(edge.id, {}))
            else:
                output.emit(span, passed.at(edge.op_index, edge.port))
        if item.marker is not None:
            self._end_mark(item.marker.mark, item.marker.capture)
        if item.count:
            self._output(item.due_us, now_us)

    def _count(self, route: Route, item: Item, done: s.Done, now_us: int) -> None:
        """Add what the slot did to the operations' figures."""
        due_us = item.due_us
        entered_us = done.began_us + done.source_ns // 1000
        first = max(route.first, 0)
        for index, figures in enumerate(done.stages, start=first):
            stage = self.chain.stages[index]
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
            if index == route.first:
                stats.entered_us += (max(item.gathered_us, due_us) - due_us) * count
                stats.wait_us += (item.cut_us - max(item.gathered_us, due_us)) * count
                stats.schedule_us += (done.began_us - item.cut_us) * count
            else:
                stats.entered_us += (entered_us - due_us) * count
            stats.left_us += (left_us - due_us) * count
            entered_us = left_us

    def _run_here(self, item: Item) -> Passed:
        """Run a micro-batch that slots are lost with in the chain itself: should it kill this process too, careful
        mode will find the record."""
        assert item.local is not None
        do, payload = item.local.do, item.local.payload
        schema = self.spec.schema_at(do.first)
        if payload is not None:
            rows = schema.to_rows(unpack(payload, schema))
        else:
            rows = schema.to_rows(self._read_again(item, do))
        return self.chain.push(rows, item.due_us, max(do.first, 0), origin=item.place)

    def _read_again(self, item: Item, do: s.Do) -> pa.RecordBatch:
        """Read a stretch of the source that a slot should have read, and count it."""
        raise NotImplementedError(f"unit {self.spec.name} has no source")

    def _sides(self, passed: Passed, first: int) -> dict[int, list[Record]]:
        """What the operations before the range have put aside, by edge."""
        edges = [output.edge for output in self.outputs if output.edge.op_index < first]
        return {edge.id: held for edge in edges if (held := passed.sides.get((edge.op_index, edge.port)))}

    def _in_line(self, detour: Detour, mark: Mark, ids: tuple[int, int], epoch: int | None = None) -> None:
        """Put a marker into the line."""
        detour.line.append(Marker(mark, *ids, self._capture(self._before(detour.route)), epoch))
        self._ending = mark is Mark.END

    def _before(self, route: Route) -> int:
        """How many counters are those of operations before the range."""
        return max(route.first, 0) + (1 if self.spec.source is not None and route.first >= 0 else 0)

    def forget(self) -> None:
        """The instance is built anew: whatever comes back is refused."""
        if self.detour is not None:
            self.detour.forget()
            self.detour = None
