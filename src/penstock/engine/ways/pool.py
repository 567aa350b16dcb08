"""The slots and replicas that a worker knows, and the items that are with them. Pure: the shell moves the bytes.

Of each slot number the task of the oldest group is used; the next group's stands by, so that nothing is waited for when
a group ends. A slot that is gone, or has not said for too long that it has a micro-batch, loses its micro-batches: they
go to another one under a new attempt, and what the old one may still send is refused. So does a micro-batch that a
slot, by its own word, does not have: it, or its result, was lost on the way.

Ways share the places at slots: one that has something to give and finds none gets the next, before a way that has
more under way. So the units of a worker go on alike, however few slots there are.

Replicas are slots of groups below 0. Each way says itself which of those it may use gets its next item. A replica that
has work is asked what it holds when it has not said so for a while: it keeps quiet by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engine.inspect import SlotView
from penstock.engine.line import Item, ItemResult
from penstock.engine.lineage import Place
from penstock.errors import rebuilt
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s

if TYPE_CHECKING:
    from penstock.engine.ways.base import Way

ATTEMPTS_MAX = 3
"""Slots that may be lost with a micro-batch before the worker runs it itself."""

DEPTH = 2
"""Micro-batches of one worker that may be with a slot: one at work, one waiting."""
TRIED_RECORDS = 64
"""Of its source, on which a slot tries what it has built."""
MISSED_US = 1_000_000
"""So long after it was sent, a micro-batch has come to its slot; unless it, or its result, was lost on the way."""
ASK_US = 500_000
"""After so long without a word from a replica that has work, it is asked."""
LOST_US = 10_000_000
"""A micro-batch whose slot has not said for so long that it has it is given to another one; later at each attempt."""
GONE_MAX = 1_000
"""Slots, and groups, whose end is remembered: a late word must not bring them back."""

SlotFrames = tuple[str, list[bytes]]
"""Endpoint of a slot, and the frames of one message to it."""


Built = tuple[int, int, Range]
"""What a slot builds before it runs a micro-batch: the operations of a unit's instance."""


@dataclass(slots=True, eq=False)
class Work:
    """A micro-batch on its way: what the slot is told, the item that it is, and the way that sent it."""

    do: s.Do
    item: Item
    way: Way
    sent_us: int = 0
    held_us: int = 0
    """When its slot last said that it has it: slow work is not lost."""
    number: int = 0
    """Of the slot or replica that it was given to."""

    @property
    def what(self) -> Built:
        """The operations that run it."""
        return self.do.unit, self.do.instance, self.do.range


@dataclass(slots=True)
class Known:
    """A slot or replica that a worker knows."""

    ready: s.Ready
    leaving: bool = False
    holds: list[int] | None = None
    """What it says it has; None once that was looked at."""
    work: dict[int, Work] = field(default_factory=dict)
    building: dict[int, tuple[Built, int]] = field(default_factory=dict)
    """What it was asked to build and when, by number."""
    built: set[Built] = field(default_factory=set)
    asked_us: int = 0

    def has_begun(self, what: Built) -> bool:
        """Whether it has built these operations, or does so soon."""
        building = any(asked == what for asked, _ in self.building.values())
        return what in self.built or building or any(work.what == what for work in self.work.values())

    def has_room_for(self, way: Way) -> bool:
        """Whether it takes another micro-batch of a way now.

        One that would cost the same with more records does not wait behind another such: it gathers meanwhile. It does
        wait behind others, for a slot that they share may never be empty.
        """
        if way.is_whole and any(each.way.is_whole for each in self.work.values()):
            return False
        return len(self.work) < DEPTH


class SlotPool:
    """Gives micro-batches to slots."""

    def __init__(self, worker: int, incarnation: int) -> None:
        self.refused_results = 0
        self.owner = worker, incarnation
        """Who sends the micro-batches."""
        self._known: dict[int, Known] = {}
        self._unsent: deque[Work] = deque()
        self._wanting: dict[Way, int] = {}
        """Ways that have something to give and found no room, who came first first; and in which turn they said so."""
        self._turn = 0
        self._out: list[SlotFrames] = []
        # Not those of an earlier incarnation: a result for it that comes late is nobody's.
        self._items = (incarnation & 0xFFFFF) << 32
        self._gone: deque[int] = deque(maxlen=GONE_MAX)
        """Slots that were replaced or take no more."""
        self._ended: deque[int] = deque(maxlen=GONE_MAX)
        """Groups whose tasks have ended."""

    def next_item(self) -> int:
        """Return a number that no micro-batch of this worker has had."""
        self._items += 1
        return self._items

    @property
    def slots(self) -> int:
        """How many slots take work now."""
        return len(self.used())

    @property
    def room(self) -> int:
        """How many more micro-batches can be given out now."""
        return sum(DEPTH - len(each.work) for each in self.used()) - len(self._unsent)

    def room_for(self, way: Way) -> int:
        """How many more a way can give out now, where others want places too."""
        places = self.room
        if places > 0 and self._wanting:
            mine, before = self._under_way(way), way in self._wanting
            for other in self._wanting:
                if other is way:
                    before = False
                    continue
                theirs = self._under_way(other)
                places -= theirs < mine or (theirs == mine and (before or way not in self._wanting))
        if way.is_whole:
            whole = sum(each.way.is_whole for each in self._unsent)
            places = min(places, sum(each.has_room_for(way) for each in self.used()) - whole)
        return places

    def want(self, way: Way) -> None:
        """Take note that a way has something to give and found no room; that holds for this turn and the next."""
        self._wanting[way] = self._turn

    def _under_way(self, way: Way) -> int:
        at_slots = sum(work.way is way for each in self._known.values() for work in each.work.values())
        return at_slots + self.unsent_of(way)

    @property
    def unsent(self) -> list[int]:
        """Micro-batches that no slot has."""
        return [each.do.item for each in self._unsent]

    def inspect(self) -> list[SlotView]:
        """The slots that are known, and what is with them."""
        return [
            SlotView(number, each.ready.group, {item: work.do.attempt for item, work in each.work.items()})
            for number, each in self._known.items()
        ]

    @property
    def replica_numbers(self) -> list[int]:
        """The replicas that take work now."""
        return sorted({each.ready.slot for each in self._known.values() if each.ready.group < 0 and not each.leaving})

    def replicas(self, numbers: Collection[int]) -> list[Known]:
        """Those of these replicas that take work now; of each number the newest."""
        newest: dict[int, Known] = {}
        for each in self._known.values():
            ready = each.ready
            if ready.group < 0 and not each.leaving and ready.slot in numbers:
                found = newest.get(ready.slot)
                if found is None or ready.group < found.ready.group:
                    newest[ready.slot] = each
        return list(newest.values())

    def unsent_of(self, way: Way) -> int:
        """How many items of a way nobody has."""
        return sum(each.way is way for each in self._unsent)

    def _standing(self) -> list[Known]:
        return [each for each in self._known.values() if not each.leaving and each.ready.group >= 0]

    def used(self) -> list[Known]:
        """The slots that take work now, of each number the oldest."""
        oldest: dict[int, Known] = {}
        for each in self._standing():
            found = oldest.get(each.ready.slot)
            if found is None or each.ready.group < found.ready.group:
                oldest[each.ready.slot] = each
        return list(oldest.values())

    # --- messages -----------------------------------------------------------------------------------------------------

    def receive(self, message: s.FromSlot, payloads: Sequence[bytes]) -> None:
        """Take a word, or a result, of a slot.

        Raises
        ------
        PenstockError
            What an operation has failed with for good.
        """
        match message:
            case s.Ready():
                self.on_ready(message)
            case s.Leave(incarnation=incarnation, ended=ended):
                self.on_leave(incarnation, ended)
            case s.Done() | s.NotDone() if self._is_built(message.incarnation, message.item):
                pass
            case s.Done(incarnation=incarnation, item=item, attempt=attempt):
                work = self.take(incarnation, item, attempt)
                if work is not None:
                    work.way.on_result(work.item, ItemResult(message, payloads), work.number)
            case s.NotDone(incarnation=incarnation, item=item, attempt=attempt):
                if self.take(incarnation, item, attempt) is not None:
                    raise rebuilt(message.code, message.what, message.operation, message.hint, message.user_traceback)

    def on_ready(self, ready: s.Ready) -> None:
        """A slot is up; if Spark started it in place of a lost one, what that one had is given out again."""
        known = self._known.get(ready.incarnation)
        if known is not None:
            known.holds = ready.holds  # also of one that leaves: it finishes what it has
            return
        if ready.incarnation in self._gone or ready.group in self._ended:
            return
        for incarnation, each in list(self._known.items()):
            if (each.ready.group, each.ready.slot) == (ready.group, ready.slot):
                self._gone.append(incarnation)
                self._lose(incarnation)
        self._known[ready.incarnation] = Known(ready, holds=ready.holds)

    def on_leave(self, incarnation: int, ended: bool = False) -> None:
        """A slot has done its group: it gets no more, and hears that; what it has, it finishes, unless it has ended."""
        known = self._known.get(incarnation)
        if incarnation not in self._gone:
            self._gone.append(incarnation)
        if known is not None and ended:
            self._lose(incarnation)
        elif known is not None:
            known.leaving = True
            worker, owner = self.owner
            left = s.Left(slot=incarnation, worker=worker, incarnation=owner)
            self._out.append((known.ready.endpoint, [m.encode(left)]))

    def on_group_ended(self, group: int) -> None:
        """Spark says that the tasks of a group are gone; those of the group before may be at work still."""
        self._ended.append(group)
        for incarnation, each in list(self._known.items()):
            if each.ready.group == group:
                self._lose(incarnation)

    def _lose(self, incarnation: int) -> None:
        known = self._known.pop(incarnation)
        for work in reversed(known.work.values()):
            work.do.attempt += 1
            self._unsent.appendleft(work)

    def _give_missed(self, known: Known, holds: list[int], now_us: int) -> None:
        """Ask again for what was lost on the way to a slot, or on the way back."""
        for item, work in reversed(list(known.work.items())):
            if item not in holds and now_us - work.sent_us > MISSED_US:
                del known.work[item]
                work.do.attempt += 1
                self._unsent.appendleft(work)
        for item, (_, asked_us) in list(known.building.items()):
            if item not in holds and now_us - asked_us > MISSED_US:
                del known.building[item]

    def take(self, incarnation: int, item: int, attempt: int) -> Work | None:
        """Take a micro-batch back whose result has come; None if it is not, or no longer, with that slot."""
        known = self._known.get(incarnation)
        work = known.work.get(item) if known is not None else None
        if known is None or work is None or work.do.attempt != attempt:
            self.refused_results += 1
            return None
        del known.work[item]
        known.built.add(work.what)
        if known.leaving and not known.work:
            del self._known[incarnation]
        return work

    # --- work ---------------------------------------------------------------------------------------------------------

    def is_ready_for(
        self,
        what: Built,
        now_us: int,
        using: dict[int, str] | None = None,
        replicas: Collection[int] = (),
        recent: Place | None = None,
    ) -> bool:
        """Whether all slots, or these replicas, have built the operations; those that have not are asked to.

        So are slots that stand by for the next group: nobody waits for them, but they may be used at any time.
        """
        asked = self.replicas(replicas) if replicas else self.used()
        self._have_built(asked if replicas else self._standing(), what, now_us, using, recent, rows=bool(replicas))
        return all(what in known.built for known in asked) and (bool(asked) or not replicas)

    def choose(self, way: Way, what: Built, using: dict[int, str], recent: Place | None, now_us: int) -> Known | None:
        """The slot that gets the next micro-batch of a way: one that has built its operations, if such a one has room.

        What a slot does only once would make everything behind that micro-batch wait too. So slots that have come up
        since the range went to batch form are asked to do it beside.
        """
        free = [each for each in self.used() if each.has_room_for(way)]
        chosen = min(free, key=lambda each: (what not in each.built, len(each.work), each.ready.slot), default=None)
        others = [each for each in self._standing() if each is not chosen]
        self._have_built(others, what, now_us, using, recent)
        return chosen

    def _have_built(
        self,
        slots: Sequence[Known],
        what: Built,
        now_us: int,
        using: dict[int, str] | None,
        recent: Place | None,
        *,
        rows: bool = False,
    ) -> None:
        """Ask those that have not built the operations; they try them on ``recent`` records, if these can be read."""
        worker, owner = self.owner
        unit, instance, chosen = what
        for known in slots:
            if not known.has_begun(what):
                do = s.Do(
                    slot=known.ready.incarnation, worker=worker, incarnation=owner, item=self.next_item(), attempt=0,
                    unit=unit, instance=instance, range=chosen, partition=recent.partition if recent is not None else 0,
                    runs=recent.runs if recent is not None else [], count=0,
                    due_us=now_us, sample=False, using=using or {}, rows=rows,
                )  # fmt: skip
                known.building[do.item] = what, now_us
                self._out.append((known.ready.endpoint, [m.encode(do)]))

    def _is_built(self, incarnation: int, item: int) -> bool:
        """Whether this answers what a slot was asked to build; if that failed, its first micro-batch will say so."""
        known = self._known.get(incarnation)
        if known is None or item not in known.building:
            return False
        known.built.add(known.building.pop(item)[0])
        return True

    def submit(self, work: Work) -> None:
        """Give a micro-batch out, as soon as a slot has room."""
        self._wanting.pop(work.way, None)
        self._unsent.append(work)

    def withdraw(self, way: Way) -> None:
        """Forget the micro-batches of a way whose unit is built anew; their results are refused."""
        self._unsent = deque(each for each in self._unsent if each.way is not way)
        for known in self._known.values():
            for item in [item for item, work in known.work.items() if work.way is way]:
                del known.work[item]

    def recall(self, way: Way) -> None:
        """Give what no slot has back to the unit that sent it."""
        self._give_back([each for each in self._unsent if each.way is way])

    def reassign(self, way: Way, using: dict[int, str]) -> int:
        """Have other alternatives compute what no slot has of a way; return how many records that are."""
        found = [each for each in self._unsent if each.way is way]
        for work in found:
            work.do.using = work.item.using = using
        return sum(work.item.count for work in found)

    def give_back_lost(self) -> bool:
        """Have units run what slots were lost with too often; say whether there was any."""
        if not self._unsent or all(each.do.attempt < ATTEMPTS_MAX for each in self._unsent):
            return False
        self._give_back([each for each in self._unsent if each.do.attempt >= ATTEMPTS_MAX])
        return True

    def _give_back(self, found: list[Work]) -> None:
        for work in found:
            work.item.given_back = True
            self._unsent.remove(work)

    def sample(self, do: s.Do, payload: bytes | None) -> bool:
        """Send a sample to some slot; it answers to the driver."""
        used = self.used()
        if used:
            slot = min(used, key=lambda each: len(each.work))
            do.slot = slot.ready.incarnation
            self._out.append((slot.ready.endpoint, [m.encode(do)] if payload is None else [m.encode(do), payload]))
        return bool(used)

    def send(self, now_us: int) -> list[SlotFrames]:
        """Return the messages for slots."""
        if not self._unsent and not self._out and not self._known:
            return []
        self._turn += 1
        if self._wanting:
            self._wanting = {way: turn for way, turn in self._wanting.items() if turn >= self._turn - 1}
        waiting: deque[Work] = deque()
        full: set[int] = set()
        """Ways that nobody takes more of."""
        while self._unsent:
            work = self._unsent.popleft()
            slot = work.way.choose(work.item, now_us) if id(work.way) not in full else None
            if slot is None:
                full.add(id(work.way))
                waiting.append(work)
                continue
            work.sent_us = work.held_us = now_us
            slot.work[work.do.item] = work
            work.do.slot, work.number = slot.ready.incarnation, slot.ready.slot
            frames = [m.encode(work.do)]
            if work.item.payload is not None:
                frames.append(work.item.payload)
            self._out.append((slot.ready.endpoint, frames))
        self._unsent = waiting
        # Afterwards: what is lost too often is not given out again, but taken back before the next time.
        self._look_for_losses(now_us)
        taken, self._out = self._out, []
        return taken

    def _look_for_losses(self, now_us: int) -> None:
        for incarnation, known in list(self._known.items()):
            if not known.work and known.holds is None:
                continue
            if known.work and known.ready.group < 0:
                self._ask(known, now_us)
            if known.holds is not None:
                for item in known.work.keys() & known.holds:
                    known.work[item].held_us = now_us
                self._give_missed(known, known.holds, now_us)
                known.holds = None
            if any(now_us - work.held_us > LOST_US << work.do.attempt for work in known.work.values()):
                self._lose(incarnation)

    def _ask(self, known: Known, now_us: int) -> None:
        heard_us = min(work.held_us for work in known.work.values())
        if now_us - max(heard_us, known.asked_us) > ASK_US:
            known.asked_us = now_us
            worker, owner = self.owner
            ask = s.Ask(slot=known.ready.incarnation, worker=worker, incarnation=owner)
            self._out.append((known.ready.endpoint, [m.encode(ask)]))
