"""The way *replicas*: the record form of a range in other long-running processes; an item is what has arrived.

Nothing is gathered: when it is calm, an item is one record. What arrives at once is dealt out in items of a few
milliseconds' work. Results come back in any order; the line lets them out in its own.

========  ==========================================  =============================================================
replica   event                                       effect
========  ==========================================  =============================================================
inactive  the degree grows to it                      it builds the operations; from the next item on it is active
active    an item is to be dealt, it has room         the least utilised one gets it
active    the degree shrinks below it                 it gets no more; what it has, it finishes, and the line waits
active    lost, or silent for too long with an item   its items go to others, under a new attempt
any       a result of an attempt before               refused
any       none of the active ones is there            items wait; when another way is to take over, they are given
                                                      back and the unit runs them
========  ==========================================  =============================================================

So a change of the degree takes nothing over: neither what is queued nor what is in line is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.engine.event_time import Origin
from penstock.engine.figures import count_away
from penstock.engine.inputs.base import Taken
from penstock.engine.line import Item, ItemResult, Sides
from penstock.engine.passed import Passed
from penstock.engine.sections import pack_rows, rows_opener
from penstock.engine.ways.base import Way
from penstock.engine.ways.dealing import Dealing
from penstock.engine.ways.pool import DEPTH, Known, SlotPool, Work
from penstock.pipeline.options import Grouping
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.pulses import ReplicaPulse
from penstock.types import Record

if TYPE_CHECKING:
    from penstock.engine.unit import Unit
    from penstock.engine.ways.here import Leave
    from penstock.protocol.messages import Switch

ITEM_WORK_US = 5_000
"""An item is about this much work at the most, so that results keep coming and a change takes effect soon."""
ITEM_WORK_US_MIN = 500
"""Less is not worth a message of its own where several records have arrived."""
ITEM_RECORDS_MAX = 4_096
ITEMS_PER_REPLICA = 8
"""Items in the line for each active replica, at the most: results that wait for their turn must not pile up."""
ITEM_BLOCKS = 8
"""About the most that an item may weigh, in blocks."""
COST_WEIGHT = 0.2


class Replicas(Way):
    """Deals what arrives at a range out to replicas.

    Parameters
    ----------
    leave : callable
        Lets what has passed the whole chain out.
    again : callable
        Has the unit run an item itself.
    """

    def __init__(
        self, unit: Unit, switch: Switch, pool: SlotPool, leave: Leave, again: Callable[[Item, int], None]
    ) -> None:
        self.range = chosen = switch.range
        self.until = chosen.first
        self.numbers = switch.replicas
        spec, options = unit.spec, unit.plan.options
        self._unit = spec.id
        self._instance = unit.instance
        self._pool = pool
        self._line = unit.line
        self._chain, self._times, self._input = unit.chain, unit.times, unit.input
        self._schema = spec.schema_at(chosen.first)
        self._open = rows_opener(spec.schema_at(chosen.last + 1))
        self._open_side = {(edge.op_index, edge.port): rows_opener(edge.schema) for edge in unit.plan.outputs(spec.id)}
        self._keeps_rows = unit.times.are_read_in(chosen)
        self._leave = leave
        self._again = again
        self._dealing = Dealing(options.grouping, options.replica_interval_us)
        self._idle_first = options.grouping is Grouping.LOAD
        self._cost_us = unit.chain.record_ns(chosen) / 1000
        """What a record costs, as far as that is known."""
        self._item_bytes = ITEM_BLOCKS * options.block_bytes
        self.records_in = self.records_out = 0
        """Records dealt out, and those that came back: of them, what follows."""
        self.busy_us = self.cpu_us = 0
        self._began_us: dict[int, int] = {}
        """When each active replica began its first item."""

    # --- taking -------------------------------------------------------------------------------------------------------

    @property
    def opens_blocks(self) -> bool:
        return True

    @property
    def room(self) -> int:
        """How many items may be dealt now."""
        present = self._pool.replicas(self.numbers)
        room = sum(DEPTH - len(each.work) for each in present) - self._pool.unsent_of(self)
        if room <= 0:
            return 0
        return min(room, ITEMS_PER_REPLICA * len(present) - sum(each.count > 0 for each in self._line.items))

    @property
    def has_room(self) -> bool:
        return self.room > 0

    @property
    def records_room(self) -> int:
        return max(1, self.room * self._fitting(ITEM_WORK_US))

    def is_full(self, origin: int) -> bool:
        del origin
        return self.room <= 0

    def adapt(self, switch: Switch) -> bool:
        if not switch.replicas or switch.range != self.range:
            return False
        self.numbers = switch.replicas
        self._began_us = {number: at_us for number, at_us in self._began_us.items() if number in self.numbers}
        return True

    def _fitting(self, work_us: int) -> int:
        if self._cost_us <= 0.0:
            return 1  # of what is not known yet, one
        return max(1, min(ITEM_RECORDS_MAX, int(work_us / self._cost_us)))

    def take(self, taken: Taken, entered: Passed, now_us: int) -> None:
        rows, origin = entered.rows, taken.origin
        if not rows:
            self._line.append(Item(self.range, 0, taken.due_us, now_us, now_us, origin, taken.place, entered.sides))
            return
        spread = -(-len(rows) // max(1, len(self.numbers)))
        each = min(self._fitting(ITEM_WORK_US), max(spread, self._fitting(ITEM_WORK_US_MIN)))
        sides = entered.sides
        for at in range(0, len(rows), each):
            piece = rows[at : at + each]
            # What is said of event time and idleness holds behind all of the records.
            last = at + each >= len(rows)
            told = origin if last else Origin(origin.input, origin.lane, straggler_us=origin.straggler_us)
            item = Item(self.range, len(piece), taken.due_us, now_us, now_us, told, taken.place, sides)
            item.rows, item.skip, sides = piece, at, {}
            self._send(item)

    def _send(self, item: Item) -> None:
        rows = item.rows
        assert rows is not None
        payload = pack_rows(rows)
        if len(payload) > self._item_bytes and item.count > 1:
            for part in _halves(item, rows):
                self._send(part)
            return
        self._line.append(item)
        if len(payload) > m.MESSAGE_BYTES_MAX:
            item.given_back = True  # too heavy to travel
            return
        item.payload, item.size_bytes = payload, len(payload)
        item.number = self._pool.next_item()
        self.records_in += item.count
        self._pool.submit(Work(self._do(item), item, self))

    def _do(self, item: Item) -> s.Do:
        worker, incarnation = self._pool.owner
        return s.Do(
            slot=0, worker=worker, incarnation=incarnation, item=item.number, attempt=0,
            unit=self._unit, instance=self._instance, range=self.range,
            partition=item.place.partition if item.place is not None else 0,
            runs=item.place.runs if item.place is not None else [],
            count=item.count, due_us=item.due_us or item.cut_us, sample=False, rows=True, skip=item.skip,
        )  # fmt: skip

    def choose(self, item: Item, now_us: int) -> Known | None:
        present = {each.ready.slot: each for each in self._pool.replicas(self.numbers)}
        free = [number for number, each in present.items() if len(each.work) < DEPTH]
        if self._idle_first:
            # A record behind another one waits for as long as that takes, which a replica without work would save it.
            free = [number for number in free if not present[number].work] or free
        chosen = self._dealing.choose(self.numbers, free, item.count * self._cost_us, now_us)
        return present[chosen] if chosen is not None else None

    # --- results ------------------------------------------------------------------------------------------------------

    def on_result(self, item: Item, result: ItemResult, number: int = 0) -> None:
        done = result.done
        at = len(done.carried)
        rows: list[Record] = []
        for packed in result.payloads[:at]:
            rows += self._open(packed)
        sides: Sides = {}
        for side, packed in zip(done.sides, result.payloads[at:], strict=True):
            place = side.index, side.port
            sides.setdefault(place, []).extend(self._open_side[place](packed))
        item.result, item.passed, item.payload = result, Passed(rows, sides), None
        if not self._keeps_rows:
            item.rows = None
        took_us = done.done_us - done.began_us
        each_us = max(0.1, took_us / item.count)
        self._cost_us += COST_WEIGHT * (each_us - self._cost_us) if self._cost_us else each_us
        self._dealing.done(number, took_us)
        if number in self.numbers and number not in self._began_us:
            self._began_us[number] = done.began_us
        self.records_out += item.count
        self.busy_us += took_us
        self.cpu_us += done.cpu_ns // 1000

    def let_out(self, item: Item, now_us: int) -> None:
        assert item.passed is not None
        assert item.result is not None
        done, came = item.result.done, item.passed
        if not self._times.read_away(item.origin, done.times):
            item.given_back = True  # some of its records are late by their lane, and a replica cannot know that
            self._again(item, now_us)
            return
        item.due_us = item.due_us or done.due_us
        count_away(self._chain, self._input, item, done, now_us)
        after = self.range.last + 1
        pieces = self._times.run(Passed(came.rows), item.due_us, item.origin, after, None, item.place)
        first = pieces[0][0]
        first.sides = {**item.sides, **came.sides, **first.sides}
        for passed, origin in pieces:
            self._leave(Taken(came.rows, item.due_us, origin), passed, now_us)

    # --- the end ------------------------------------------------------------------------------------------------------

    def figures(self, now_us: int) -> ReplicaPulse:
        """What has been dealt, and how busy the active replicas are."""
        return ReplicaPulse(
            range=self.range,
            records_in=self.records_in,
            records_out=self.records_out,
            busy_us=self.busy_us,
            cpu_us=self.cpu_us,
            utilisation=self._dealing.utilisation(self.numbers, now_us),
            began_us=dict(self._began_us),
        )

    def recall(self) -> None:
        """Give back what no replica is there for."""
        if not self._pool.replicas(self.numbers):
            self._pool.recall(self)

    def forget(self) -> None:
        self._pool.withdraw(self)


def _halves(item: Item, rows: list[Record]) -> list[Item]:
    """Two items in place of one that is too heavy."""
    half = item.count // 2
    told = Origin(item.origin.input, item.origin.lane, straggler_us=item.origin.straggler_us)
    first = Item(item.range, half, item.due_us, item.came_us, item.cut_us, told, item.place, item.sides)
    second = Item(item.range, item.count - half, item.due_us, item.came_us, item.cut_us, item.origin, item.place)
    first.rows, first.skip = rows[:half], item.skip
    second.rows, second.skip = rows[half:], item.skip + half
    return [first, second]
