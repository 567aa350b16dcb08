"""The way *slots*: the vectorised chain in tasks of a Spark job per group; an item is a micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.dataset import Block, Scale, join_columns, pack
from penstock.dataset.sizes import BLOCK_BYTES
from penstock.engine.event_time import Origin
from penstock.engine.line import Item, ItemResult, Line, Sides
from penstock.engine.ways.base import Way
from penstock.engine.ways.pool import TRIED_RECORDS, Known, SlotPool, Work
from penstock.metrics.times import later
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.types import Schema

if TYPE_CHECKING:
    from penstock.engine.inputs import Input, Stretch, Taken
    from penstock.engine.lineage import Place
    from penstock.engine.passed import Passed
    from penstock.engine.unit import Unit
    from penstock.protocol.messages import Switch

ITEM_RECORDS_MAX = 65_536
_FIRST_ITEM_RECORDS = 2_048
ITEM_WORK_US = 25_000
"""A micro-batch is about this much work for a slot at the most, so that results keep coming."""
WHOLE_INTERVAL_US = 100_000
"""So long a micro-batch gathers at the least where its size hardly matters for what it costs."""
ITEM_BLOCKS = 8
"""About the most that a micro-batch, or its results, may weigh, in blocks: far below the limit of a message."""
ITEMS_PER_SLOT = 8
"""Micro-batches in the line for each slot, at the most: results that wait for their turn must not pile up."""
FIRST_PACE_US = 1_000
"""How long the first micro-batch gathers; the next twice as long, and so on: who reads the results hardly waits."""
LINE_BLOCKS = 64
"""About the most that everything in the line may weigh, in blocks."""


@dataclass(slots=True)
class Gathering:
    """Blocks of one input that become one micro-batch."""

    since_us: int
    place: Place | None
    origin: Origin
    blocks: list[Block] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0
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
    record_ns : float
        What a record has cost in the range so far; 0 where that is not known.
    block_bytes : int
        About what a block weighs; micro-batches are made of a few.
    keeps_lanes : bool
        Lanes are not mixed in a micro-batch: event time is read off its records, here or behind.
    keeps_payloads : bool
        The unit may have to run an item although a slot has.
    using : callable
        Says which alternatives of its operations are active.
    is_whole : bool
        A micro-batch costs about the same for few records and for many: it gathers until a slot is free, and grows.
    """

    def __init__(
        self,
        range: Range,
        interval_us: int,
        pool: SlotPool,
        line: Line,
        schema: Schema,
        target: tuple[int, int],
        record_ns: float = 0.0,
        block_bytes: int = BLOCK_BYTES,
        *,
        keeps_lanes: bool = False,
        keeps_payloads: bool = False,
        using: Callable[[], dict[int, str]] = dict,
        is_whole: bool = False,
    ) -> None:
        self.range = range
        self.until = max(range.first, 0)
        self.interval_us = max(interval_us, WHOLE_INTERVAL_US) if is_whole else interval_us
        """How long a micro-batch gathers at the most."""
        self._pace_us = self.interval_us if is_whole else FIRST_PACE_US
        # Of slow operations even the first micro-batch must not be so large that its slot is given up for lost.
        fitting = int(1000 * ITEM_WORK_US / record_ns) if record_ns > 0.0 else _FIRST_ITEM_RECORDS
        self.records_max = ITEM_RECORDS_MAX if is_whole else max(1, min(fitting, _FIRST_ITEM_RECORDS))
        self.is_whole = is_whole
        self._gathering: dict[tuple[int, int], Gathering] = {}
        """By input, and lane where they are kept apart."""
        self._pool = pool
        self._line = line
        self._schema = schema
        self._unit, self._instance = target
        self._keeps_lanes = keeps_lanes
        self._keeps_payloads = keeps_payloads
        self._using = using
        self._scale = Scale()
        self._item_bytes = ITEM_BLOCKS * block_bytes
        self._line_bytes = LINE_BLOCKS * block_bytes

    @property
    def pace_us(self) -> int:
        """How long the next micro-batch gathers at the most."""
        return min(self._pace_us, self.interval_us)

    @staticmethod
    def of(unit: Unit, switch: Switch, pool: SlotPool) -> Slots:
        """The way that a switch leads a unit to."""
        chosen, times = switch.range, unit.times
        return Slots(
            chosen, switch.interval_us, pool, unit.line, unit.spec.schema_at(chosen.first),
            (unit.spec.id, unit.instance), unit.chain.record_ns(chosen), unit.plan.options.block_bytes,
            keeps_lanes=times.keeps_lanes, keeps_payloads=times.are_read_in(chosen),
            using=lambda: unit.exchanges.using(chosen), is_whole=unit.spec.is_whole(chosen.first, chosen.last),
        )  # fmt: skip

    @property
    def batched(self) -> Range:
        return self.range

    @property
    def stretch_us(self) -> int | None:
        return self.pace_us if self.range.first < 0 else None

    @property
    def room(self) -> int:
        """How many micro-batches may be cut now: what slots can take, while results do not pile up."""
        return min(self._pool.room_for(self), self._line_room)

    @property
    def _line_room(self) -> int:
        in_line = size_bytes = 0
        for each in self._line.items:
            in_line += each.count > 0
            size_bytes += each.size_bytes
        if size_bytes >= self._line_bytes:
            return 0
        return max(0, ITEMS_PER_SLOT * max(1, self._pool.slots) - in_line)

    def _want(self) -> None:
        """Something could be cut: if only places at slots are missing, the way gets one in its turn."""
        if self._line_room > 0:
            self._pool.want(self)

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
        return any(each == origin and self._is_enough(held) for (each, _), held in self._gathering.items())

    def _is_enough(self, held: Gathering) -> bool:
        return held.count >= self.records_max or held.size_bytes >= self._item_bytes

    def take(self, taken: Taken, entered: Passed, now_us: int) -> None:
        origin, block = taken.origin, taken.block
        key = origin.input, origin.lane if self._keeps_lanes else -1
        held = self._gathering.get(key)
        if held is not None and self._parts(held.origin, origin):
            self._cut(key, now_us)
            held = None
        if held is None:
            held = self._gathering[key] = Gathering(now_us, taken.place, origin)
        else:
            origin.straggler_us = held.origin.straggler_us
            origin.event_time_us = later(held.origin.event_time_us, origin.event_time_us)
            held.origin = origin
            if held.place is not None and taken.place is not None:
                held.place.extend(taken.place, follows=taken.follows)
        if block is None:
            rows = entered.rows
            size_bytes = len(rows) * self._scale.add(rows) if rows else 0
            block = Block(0, 0, 0, rows or None, None, len(rows), taken.due_us, size_bytes=size_bytes)
        held.blocks.append(block)
        held.count += block.count
        held.size_bytes += block.size_bytes
        held.waited_us += (now_us - held.since_us) * block.count
        if block.due_us and (not held.due_us or block.due_us < held.due_us):
            held.due_us = block.due_us
        for port, rows in entered.sides.items():
            held.sides.setdefault(port, []).extend(rows)
        if origin.idle is not None or origin.ends:
            # What is said of a lane or an input holds behind these records, and not behind those of the next block.
            self._cut(key, now_us)

    @staticmethod
    def _parts(held: Origin, origin: Origin) -> bool:
        """Whether records must not be in one item with those before: stragglers are judged by their lane alone."""
        if held.straggler_us is not None and held.lane != origin.lane:
            return True
        return origin.straggler_us is not None and origin.straggler_us != held.straggler_us

    def take_stretches(self, source: Input, now_us: int) -> bool:
        room = self.room
        stretches = source.stretches(now_us, self.records_max, self.pace_us, self.slots, room)
        if room <= 0 and source.is_ripe:
            self._want()
        for stretch in stretches:
            self.take_stretch(stretch, source.origin(stretch.place.partition, now_us), now_us)
        return bool(stretches)

    def take_stretch(self, stretch: Stretch, origin: Origin, now_us: int) -> None:
        """Have a slot read, and compute, some records of a source."""
        place = stretch.place
        self._send(Item(self.range, place.count, 0, stretch.since_us, now_us, origin, place))

    def cut(self, now_us: int) -> bool:
        ripe = [
            key
            for key, held in self._gathering.items()
            if self._is_enough(held) or now_us - held.since_us >= self.pace_us
        ]
        for key in ripe:
            if self.room <= 0:
                self._want()
                return key != ripe[0]
            self._cut(key, now_us)
        return bool(ripe)

    def flush(self, now_us: int) -> None:
        for key in list(self._gathering):
            self._cut(key, now_us)

    def wake_us(self) -> int | None:
        if not self._gathering or self.room <= 0:
            return None
        return min(held.since_us for held in self._gathering.values()) + self.pace_us

    def _cut(self, key: tuple[int, int], now_us: int) -> None:
        """Send a gathering out as one micro-batch; one without records is complete at once."""
        held = self._gathering.pop(key)
        item = Item(self.range, held.count, held.due_us, held.came_us, now_us, held.origin, held.place, held.sides)
        if held.count:
            item.payload = pack(join_columns(held.blocks, self._schema))
            item.size_bytes = len(item.payload)
            if item.size_bytes > self._item_bytes:
                fitting = held.count * self._item_bytes // item.size_bytes
                self.records_max = max(1, min(self.records_max, fitting))
        if held.count and item.size_bytes <= m.MESSAGE_BYTES_MAX:
            self._send(item)
        else:
            item.given_back = held.count > 0  # too heavy to travel
            self._line.append(item)

    def _send(self, item: Item) -> None:
        if self._pace_us < self.interval_us:
            self._pace_us *= 2
        self._line.append(item)
        item.number, item.using = self._pool.next_item(), self._using()
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
            range=self.range,
            partition=item.place.partition if item.place is not None else 0,
            runs=item.place.runs if item.place is not None else [],
            count=item.count,
            due_us=item.due_us or item.cut_us,
            sample=False,
            using=item.using,
        )

    def adapt(self, switch: Switch) -> bool:
        if switch.replicas or switch.range != self.range:
            return False
        self.interval_us = max(switch.interval_us, WHOLE_INTERVAL_US) if self.is_whole else switch.interval_us
        return True

    def choose(self, item: Item, now_us: int) -> Known | None:
        recent = item.place.few(TRIED_RECORDS) if item.place is not None and self.range.first < 0 else None
        return self._pool.choose(self, (self._unit, self._instance, self.range), item.using, recent, now_us)

    def on_result(self, item: Item, result: ItemResult, number: int = 0) -> None:
        """A slot has computed an item: learn how many records are about the work, and the weight, of one."""
        del number
        item.result = result
        if not self._keeps_payloads:
            item.payload = None
        item.size_bytes = result.size_bytes
        if self.is_whole:
            return
        count, took_us = item.count, max(1, result.done.done_us - result.done.began_us)
        fitting = count * self._item_bytes // max(1, item.size_bytes)
        fitting = max(1, min(count * ITEM_WORK_US // took_us, fitting))
        if fitting < self.records_max:
            self.records_max = (self.records_max + fitting) // 2
        elif 2 * count >= self.records_max:
            fitting = min(fitting, 2 * self.records_max, ITEM_RECORDS_MAX)
            self.records_max = (self.records_max + fitting + 1) // 2

    def hand_on(self, records_max: int) -> int:
        self.records_max = min(self.records_max, records_max)
        return self._pool.reassign(self, self._using())

    def recall(self) -> None:
        """Give back what no slot is there for: the way back must not wait for Spark."""
        if not self._pool.slots:
            self._pool.recall(self)

    def forget(self) -> None:
        self._pool.withdraw(self)
        self._gathering.clear()
