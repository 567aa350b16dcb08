"""A part of a unit's chain that is run elsewhere: records leave the chain, come back as results, and go on in order.

A unit keeps block ids, epochs, offsets and outputs; only the work itself goes away and comes back. So a hand-over, in
either direction, is a block id: up to it the chain ran one way, after it the other. It does not matter here who does
the work; today it is the slots of the batch path.

============  ==========================================  ==============================================  ============
way           event                                       effect                                          next
============  ==========================================  ==============================================  ============
CHAIN         order: a range                              at the end of the present block: detour begins  DETOUR
DETOUR        records due, micro-batch full or T over     cut: an id, a place in the line, sent out       DETOUR
DETOUR        marker                                      a place in the line, with what it captures      DETOUR
DETOUR        result of the first in line                 it goes on behind the range; output             DETOUR
DETOUR        order: none, or another range               nothing more is cut                             RETURNING
RETURNING     the line is empty                           the chain goes on with the next block           CHAIN
any           the instance is rolled back                 the line is forgotten, results are refused      CHAIN
============  ==========================================  ==============================================  ============
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.dataset import Block, Mark, join_columns, pack
from penstock.engine.lineage import Place
from penstock.engine.pool import SlotPool, Work
from penstock.protocol import slots as s
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from penstock.engine.edges import EdgeInput
    from penstock.engine.unit import Capture

ITEM_RECORDS_MAX = 65_536
_FIRST_ITEM_RECORDS = 2_048
ITEM_WORK_US = 25_000
"""A micro-batch is about this much work for a slot at the most, so that results keep coming."""
ITEM_BYTES_MAX = 8 << 20
"""About the most that a micro-batch and its results may weigh: far below the limit of a message."""


@dataclass(frozen=True, slots=True)
class Route:
    """Operations ``first`` to ``last`` of a chain, both included (-1 is the source), are run elsewhere."""

    first: int
    last: int
    interval_us: int = 50_000
    """How long a micro-batch gathers at the most."""

    def same_range(self, other: Route) -> bool:
        """Whether both take the same operations elsewhere."""
        return (self.first, self.last) == (other.first, other.last)


@dataclass(slots=True)
class Result:
    """A micro-batch that has come back."""

    done: s.Done
    payloads: Sequence[bytes]


@dataclass(slots=True)
class Item:
    """A micro-batch in line."""

    item: int
    first: int
    last: int
    count: int
    due_us: int
    gathered_us: int
    """When its records came, on average, or were due and could have been taken."""
    cut_us: int
    origin: EdgeInput | int | None
    """Input or source partition that it is of."""
    place: Place | None = None
    """Where the source records begin that it was made of, in a unit that reads a source."""
    sides: dict[int, list[Record]] = field(default_factory=dict)
    """Records that operations before the range have put aside, by edge."""
    result: Result | None = None
    local: Work | None = None
    """Set when slots were lost with it too often: the chain itself runs it."""
    marker: Marker | None = None
    """A marker that came in the same block."""
    clock_us: int = 0
    """When it was cut, on a clock that stands still while its unit cannot read; set by units that keep one."""


@dataclass(slots=True)
class Marker:
    """A marker in line, with what belongs to its snapshot."""

    mark: Mark
    first: int
    last: int
    capture: Capture
    epoch: int | None = None
    """Which epoch it ends; None: the one that is open when it is its turn."""


@dataclass(slots=True)
class Gathering:
    """Blocks of one input that become one micro-batch."""

    origin: EdgeInput | int | None
    since_us: int
    blocks: list[Block] = field(default_factory=list)
    count: int = 0
    due_us: int = 0
    waited_us: int = 0
    """How long after the first block the records came, in all."""
    sides: dict[int, list[Record]] = field(default_factory=dict)

    @property
    def came_us(self) -> int:
        """When the records came, on average."""
        return self.since_us + self.waited_us // max(1, self.count)


class Detour:
    """The line of one unit instance: micro-batches and markers in the order of their ids."""

    def __init__(
        self, route: Route, pool: SlotPool, unit: int, instance: int, owner: tuple[int, int], record_ns: float = 0.0
    ) -> None:
        self.route = route
        self.closing = False
        """Nothing more is cut."""
        # Of slow operations even the first micro-batch must not be so large that its slot is given up for lost.
        fitting = int(1000 * ITEM_WORK_US / record_ns) if record_ns > 0.0 else _FIRST_ITEM_RECORDS
        self.records_max = max(1, min(fitting, _FIRST_ITEM_RECORDS))
        self.line: deque[Item | Marker] = deque()
        self.gathering: dict[int, Gathering] = {}
        self._pool = pool
        self._unit = unit
        self._instance = instance
        self._owner = owner
        self._items: dict[int, Item] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is under way."""
        return not self.line and not self.gathering

    @property
    def waiting_records(self) -> int:
        """Records in line, and gathered for it."""
        queued = sum(each.count for each in self.line if isinstance(each, Item))
        return queued + sum(each.count for each in self.gathering.values())

    @property
    def room(self) -> int:
        """How many micro-batches may be cut now: what slots can take, while results do not pile up."""
        in_line = len(self._items) + sum(isinstance(each, Item) and each.result is not None for each in self.line)
        return min(self._pool.room, max(0, 8 * max(1, self._pool.slots) - in_line))

    @property
    def slots(self) -> int:
        """Slots that share the work."""
        return self._pool.slots

    def gather(
        self, key: int, origin: EdgeInput | int | None, block: Block, sides: dict[int, list[Record]], now_us: int
    ) -> None:
        """Add a block to the micro-batch of its input."""
        held = self.gathering.get(key)
        if held is None:
            held = self.gathering[key] = Gathering(origin, now_us)
        held.blocks.append(block)
        held.count += block.count
        held.waited_us += (now_us - held.since_us) * block.count
        if block.due_us and (not held.due_us or block.due_us < held.due_us):
            held.due_us = block.due_us
        for edge, rows in sides.items():
            held.sides.setdefault(edge, []).extend(rows)

    def ripe(self, now_us: int) -> list[int]:
        """Keys of the gatherings that are to be cut now: full, or old enough; all of them when the detour closes."""
        return [
            key
            for key, held in self.gathering.items()
            if self.closing or held.count >= self.records_max or now_us - held.since_us >= self.route.interval_us
        ]

    def wake_us(self) -> int | None:
        """When a gathering is old enough."""
        return min((held.since_us + self.route.interval_us for held in self.gathering.values()), default=None)

    def cut(
        self,
        key: int,
        ids: tuple[int, int],
        schema: Schema,
        now_us: int,
        marker: Marker | None = None,
        place: Place | None = None,
    ) -> None:
        """Send a gathering out as one micro-batch; one without records is through at once."""
        held = self.gathering.pop(key)
        item = Item(
            self._pool.next_item(), *ids, held.count, held.due_us, held.came_us, now_us, held.origin, place,
            held.sides, marker=marker,
        )  # fmt: skip
        self.line.append(item)
        if not held.count:
            nothing = s.Done(
                incarnation=0,
                item=0,
                attempt=0,
                began_us=now_us,
                done_us=now_us,
                source_ns=0,
                due_us=0,
                event_time_us_max=None,
                stages=[],
                parts=[],
                carried=0,
                staged=0,
            )
            item.result = Result(nothing, ())
            return
        packed = pack(join_columns(held.blocks, schema))
        if len(packed) > ITEM_BYTES_MAX:
            self.records_max = max(1, min(self.records_max, held.count * ITEM_BYTES_MAX // len(packed)))
        self._submit(item, packed)

    def send_offsets(self, partition: int, offset: int, count: int, block_id: int, since_us: int, now_us: int) -> None:
        """Send a stretch of a source out as one micro-batch: its slot reads it."""
        place = partition, offset
        item = Item(self._pool.next_item(), block_id, block_id, count, 0, since_us, now_us, partition, place)
        self.line.append(item)
        self._submit(item, None)

    def _submit(self, item: Item, payload: bytes | None) -> None:
        self._items[item.item] = item
        worker, incarnation = self._owner
        partition, offset = item.place or (0, 0)
        do = s.Do(
            slot=0,
            worker=worker,
            incarnation=incarnation,
            item=item.item,
            attempt=0,
            unit=self._unit,
            instance=self._instance,
            first=self.route.first,
            last=self.route.last,
            partition=partition,
            offset=offset,
            count=item.count,
            due_us=item.due_us or item.cut_us,
            sample=False,
        )
        self._pool.submit(Work(do, payload))

    def holds(self, origin: EdgeInput | int | None) -> bool:
        """Whether records of an input or partition are still under way."""
        return any(isinstance(each, Item) and each.origin is origin for each in self.line) or any(
            held.origin is origin for held in self.gathering.values()
        )

    def on_result(self, item: int, result: Result) -> bool:
        """Take a result; False if it is of another detour."""
        found = self._items.pop(item, None)
        if found is None:
            return False
        found.result = result
        self._learn(found.count, result)
        return True

    def on_exhausted(self, work: Work) -> bool:
        """Slots were lost with this micro-batch too often; False if it is of another detour."""
        found = self._items.pop(work.do.item, None)
        if found is None:
            return False
        found.local = work
        return True

    def recall(self) -> None:
        """Have the chain itself run what no slot is there for: a way back must not wait for Spark."""
        if not self._pool.slots:
            for work in self._pool.recall(set(self._items)):
                self.on_exhausted(work)

    def _learn(self, count: int, result: Result) -> None:
        """How many records are about the work, and the weight, that a micro-batch should be."""
        took_us = max(1, result.done.done_us - result.done.began_us)
        size_bytes = max(1, sum(map(len, result.payloads)))
        fitting = max(1, min(count * ITEM_WORK_US // took_us, count * ITEM_BYTES_MAX // size_bytes))
        if fitting < self.records_max:
            self.records_max = (self.records_max + fitting) // 2
        elif 2 * count >= self.records_max:
            fitting = min(fitting, 2 * self.records_max, ITEM_RECORDS_MAX)
            self.records_max = (self.records_max + fitting + 1) // 2

    def forget(self) -> None:
        """The instance is built anew: whatever comes back is refused."""
        self._pool.withdraw(set(self._items))
        self._items.clear()
        self.line.clear()
        self.gathering.clear()
