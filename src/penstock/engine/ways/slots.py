"""The way *slots*: the vectorised chain in tasks of a Spark job per group; an item is a micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.dataset import Block, join_columns, pack
from penstock.engine.line import Item, Line, Range, Result, Sides
from penstock.engine.ways.base import Way
from penstock.engine.ways.pool import SlotPool, Work
from penstock.protocol import slots as s
from penstock.types import Schema

if TYPE_CHECKING:
    from penstock.engine.chain import Passed
    from penstock.engine.inputs import Stretch, Taken
    from penstock.engine.lineage import Place

ITEM_RECORDS_MAX = 65_536
_FIRST_ITEM_RECORDS = 2_048
ITEM_WORK_US = 25_000
"""A micro-batch is about this much work for a slot at the most, so that results keep coming."""
ITEM_BYTES_MAX = 8 << 20
"""About the most that a micro-batch and its results may weigh: far below the limit of a message."""
ITEMS_PER_SLOT = 8
"""Micro-batches in the line for each slot, at the most: results that wait for their turn must not pile up."""


@dataclass(slots=True)
class Gathering:
    """Blocks of one input that become one micro-batch."""

    since_us: int
    place: Place | None
    blocks: list[Block] = field(default_factory=list)
    count: int = 0
    due_us: int = 0
    waited_us: int = 0
    """How long after the first block the records came, in all."""
    sides: Sides = field(default_factory=dict)

    @property
    def came_us(self) -> int:
        """When the records came, on average."""
        return self.since_us + self.waited_us // max(1, self.count)


class Slots(Way):
    """Gathers records into micro-batches and has slots compute them.

    Parameters
    ----------
    clock_us : callable
        The input's clock, on which silence is counted; an item is stamped with it.
    record_ns : float
        What a record has cost in the range so far; 0 where that is not known.
    """

    def __init__(
        self,
        range: Range,
        interval_us: int,
        pool: SlotPool,
        line: Line,
        schema: Schema,
        target: tuple[int, int],
        clock_us: Callable[[int], int],
        record_ns: float = 0.0,
    ) -> None:
        self.range = range
        self.until = max(range.first, 0)
        self.interval_us = interval_us
        """How long a micro-batch gathers at the most."""
        # Of slow operations even the first micro-batch must not be so large that its slot is given up for lost.
        fitting = int(1000 * ITEM_WORK_US / record_ns) if record_ns > 0.0 else _FIRST_ITEM_RECORDS
        self.records_max = max(1, min(fitting, _FIRST_ITEM_RECORDS))
        self._gathering: dict[int, Gathering] = {}
        self._pool = pool
        self._line = line
        self._schema = schema
        self._unit, self._instance = target
        self._clock_us = clock_us

    @property
    def room(self) -> int:
        """How many micro-batches may be cut now: what slots can take, while results do not pile up."""
        in_line = sum(1 for each in self._line.items if each.count)
        return min(self._pool.room, max(0, ITEMS_PER_SLOT * max(1, self._pool.slots) - in_line))

    @property
    def has_room(self) -> bool:
        return self.room > 0

    @property
    def slots(self) -> int:
        """Slots that share the work."""
        return self._pool.slots

    @property
    def gathers(self) -> bool:
        return bool(self._gathering)

    def is_full(self, origin: int) -> bool:
        held = self._gathering.get(origin)
        return held is not None and held.count >= self.records_max

    def holds(self, origin: int) -> bool:
        return origin in self._gathering

    def take(self, taken: Taken, entered: Passed, now_us: int) -> None:
        held = self._gathering.get(taken.origin)
        if held is None:
            held = self._gathering[taken.origin] = Gathering(now_us, taken.place)
        elif held.place is not None and taken.place is not None:
            held.place.extend(taken.place, follows=taken.follows)
        block = taken.block
        if block is None or taken.is_open:
            block = Block(0, 0, 0, entered.rows or None, None, len(entered.rows), taken.due_us)
        held.blocks.append(block)
        held.count += block.count
        held.waited_us += (now_us - held.since_us) * block.count
        if block.due_us and (not held.due_us or block.due_us < held.due_us):
            held.due_us = block.due_us
        for port, rows in entered.sides.items():
            held.sides.setdefault(port, []).extend(rows)

    def take_stretch(self, stretch: Stretch, now_us: int) -> None:
        place = stretch.place
        self._send(Item(
            self._line.number(), self.range, place.count, 0, stretch.since_us, now_us, place.partition, place,
            seen_us=self._clock_us(now_us),
        ))  # fmt: skip

    def cut(self, now_us: int) -> bool:
        ripe = [
            origin
            for origin, held in self._gathering.items()
            if held.count >= self.records_max or now_us - held.since_us >= self.interval_us
        ]
        for origin in ripe:
            if self.room <= 0:
                return origin != ripe[0]
            self._cut(origin, now_us)
        return bool(ripe)

    def flush(self, now_us: int) -> None:
        for origin in list(self._gathering):
            self._cut(origin, now_us)

    def wake_us(self) -> int | None:
        if not self._gathering or self.room <= 0:
            return None
        return min(held.since_us for held in self._gathering.values()) + self.interval_us

    def _cut(self, origin: int, now_us: int) -> None:
        """Send a gathering out as one micro-batch; one without records is complete at once."""
        held = self._gathering.pop(origin)
        item = Item(
            self._line.number(), self.range, held.count, held.due_us, held.came_us, now_us, origin, held.place,
            held.sides, seen_us=self._clock_us(now_us),
        )  # fmt: skip
        if held.count:
            item.payload = pack(join_columns(held.blocks, self._schema))
            if len(item.payload) > ITEM_BYTES_MAX:
                fitting = held.count * ITEM_BYTES_MAX // len(item.payload)
                self.records_max = max(1, min(self.records_max, fitting))
            self._send(item)
        else:
            self._line.append(item)

    def _send(self, item: Item) -> None:
        self._line.append(item)
        item.number = self._pool.next_item()
        self._pool.submit(Work(self._do(item), item, self))

    def _do(self, item: Item) -> s.Do:
        worker, incarnation = self._pool.owner
        return s.Do(
            slot=0,
            worker=worker,
            incarnation=incarnation,
            item=item.number,
            attempt=0,
            unit=self._unit,
            instance=self._instance,
            first=self.range.first,
            last=self.range.last,
            partition=item.place.partition if item.place is not None else 0,
            runs=item.place.runs if item.place is not None else [],
            count=item.count,
            due_us=item.due_us or item.cut_us,
            sample=False,
        )

    def on_result(self, item: Item, result: Result) -> None:
        """A slot has computed an item: learn how many records are about the work, and the weight, of one."""
        item.result = result
        item.payload = None
        count, took_us = item.count, max(1, result.done.done_us - result.done.began_us)
        size_bytes = max(1, sum(map(len, result.payloads)))
        fitting = max(1, min(count * ITEM_WORK_US // took_us, count * ITEM_BYTES_MAX // size_bytes))
        if fitting < self.records_max:
            self.records_max = (self.records_max + fitting) // 2
        elif 2 * count >= self.records_max:
            fitting = min(fitting, 2 * self.records_max, ITEM_RECORDS_MAX)
            self.records_max = (self.records_max + fitting + 1) // 2

    def recall(self) -> None:
        """Give back what no slot is there for: the way back must not wait for Spark."""
        if not self._pool.slots:
            self._pool.recall(self)

    def forget(self) -> None:
        self._pool.withdraw(self)
        self._gathering.clear()
