"""Groups of micro-batches as Spark jobs: which one runs, which stands by, how large the next is. Pure.

===========  =============================================  =====================================================
group        event                                          effect
===========  =============================================  =====================================================
—            slots are wanted, fewer groups live than       Submit the next group: of one slot in calm weather, of
             wanted, and none of them is coming up          all slots otherwise
COMING UP    SlotUp from its tasks                          when all are up: UP; scheduling took so long
COMING UP    too long                                       gives up on the rest: UP with those that are there
UP           its Spark job ends                             the size of the next is tuned; workers forget its slots;
                                                            End to older groups: workers have given up on them
UP, small    a group of all slots is up                     End to its task
any, not     no work for `calm_us`                          End to its tasks
small
any          its Spark job fails                            as above; the next one is submitted later, and later
—            so many in a row failed before a task began    given up: no group is submitted any more
any          slots are no longer wanted, or a worker        End to its tasks
             needs a place
===========  =============================================  =====================================================

In calm weather one slot stands by, for samples, and so that a burst finds one ready: a calm job holds one core besides
its workers'. A burst begins with that slot while a group of all slots comes up; while work is done, one more group
stands by. Where a job's forms are settled to batch, every group has all slots.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.control.laws.group_size import GroupSize, tune
from penstock.protocol import messages as m
from penstock.protocol import slots as s

FIRST_SIZE = 8
UP_US_MAX = 20_000_000
"""Tasks that have not come up by then find no free slot in the cluster."""
RETRY_US_MIN = 1_000_000
"""Before the next group after one that failed; twice as long after each in a row."""
FAILURES_MAX = 4
"""Groups in a row of which no task could begin; the next one would fail alike."""
FIGURES_MAX = 1_000
"""Groups that are remembered for reports."""
CALM_SLOTS = 1
"""Slots that stand by in calm weather."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a Spark job whose tasks are the slots of a group."""

    group: int
    slots: int
    micro_batches: int
    """How many each of its tasks runs before it ends."""


@dataclass(frozen=True, slots=True)
class TellSlot:
    """Send a message to a slot, named by its incarnation."""

    slot: int
    message: s.ToSlotFromDriver


GroupCommand = Submit | TellSlot


@dataclass(slots=True)
class GroupFigures:
    """What a group was like, for reports."""

    group: int
    slots: int
    size: int
    scheduling_ms: float
    execution_ms: float
    micro_batches: int
    overhead: float


@dataclass(slots=True)
class _Group:
    number: int
    slots: int
    size: int
    submitted_us: int
    up_us: int | None = None
    live: dict[int, s.SlotUp] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    """Slots that have come up, though they may have done their share before the last one did."""
    batches: int = 0
    worked_us: int = 0
    ending: bool = False


class Groups:
    """Keeps as many groups up as are wanted."""

    def __init__(self, slots: int, size: int | None = None, calm_us: int = 0) -> None:
        self.slots = slots
        """Of a group that works."""
        self.finished: list[GroupFigures] = []
        self.error: str | None = None
        """Why the last group's job failed, or some of its tasks did; None after one that did not."""
        self.given_up: str | None = None
        """Why no more groups are submitted."""
        self._failures = 0
        self._tuned = GroupSize(FIRST_SIZE if size is None else size)
        self._fixed = size is not None
        self._groups: dict[int, _Group] = {}
        self._next = 1
        self._wanted = 0
        self._all_slots = self._is_work = False
        self._calm_us = calm_us
        self._worked_us: int | None = None
        """When there was work last."""
        self._retry_at_us = 0
        self._retry_us = RETRY_US_MIN
        self._peers: list[m.Peer] = []
        self._start_us = 0

    @property
    def size(self) -> int:
        """Micro-batches of the next group's tasks."""
        return self._tuned.size

    @property
    def overhead(self) -> float | None:
        """Scheduling's averaged share of a group's time."""
        return self._tuned.overhead

    @property
    def up(self) -> int:
        """Slots of groups that are up."""
        return max((len(each.live) for each in self._groups.values() if each.up_us is not None), default=0)

    @property
    def pids(self) -> dict[tuple[int, int], int]:
        """Process of every slot."""
        return {(g.number, up.slot): up.pid for g in self._groups.values() for up in g.live.values()}

    @property
    def offered(self) -> int:
        """Slots that work would have now, or soon; 0: none is up."""
        up = [each for each in self._groups.values() if each.up_us is not None and not each.ending]
        return max((len(each.live) for each in up if not self._is_small(each)), default=self.slots if self.up else 0)

    def want(self, groups: int, *, all_slots: bool = False, is_work: bool | None = None) -> None:
        """Say how many groups shall be up: none, one that waits, or one at work and one that stands by.

        With ``all_slots`` the one that waits has all of them, as there will be work for it. Where no more than one is
        wanted although there is work, ``is_work`` says so.
        """
        self._wanted, self._all_slots = groups, all_slots
        self._is_work = groups > 1 if is_work is None else is_work

    def _is_small(self, group: _Group) -> bool:
        return group.slots < self.slots

    def know(self, peers: list[m.Peer], start_us: int) -> list[GroupCommand]:
        """Take note of who the workers are; slots that are up hear it too."""
        if peers == self._peers and start_us == self._start_us:
            return []
        self._peers, self._start_us = list(peers), start_us
        return self.tell_all(s.Workers(peers=self._peers, start_us=start_us))

    def tell_all(self, message: s.ToSlotFromDriver) -> list[GroupCommand]:
        """A message to every slot."""
        return [TellSlot(up.incarnation, message) for each in self._groups.values() for up in each.live.values()]

    def on_up(self, up: s.SlotUp, now_us: int) -> list[GroupCommand]:
        """A task has started."""
        group = self._groups.get(up.group)
        if group is None or group.ending:
            return [TellSlot(up.incarnation, s.End(at_once=True))]
        group.live[up.slot] = up
        group.seen.add(up.slot)
        self._failures, self._retry_us = 0, RETRY_US_MIN
        if group.up_us is None and len(group.seen) == group.slots:
            group.up_us = now_us
        # Before the workers have started there is nobody to be ready for.
        return (
            [TellSlot(up.incarnation, s.Workers(peers=self._peers, start_us=self._start_us))] if self._start_us else []
        )

    def on_down(self, down: s.SlotDown) -> None:
        """A task has done its share and ends."""
        group = self._groups.get(down.group)
        if group is not None:
            group.batches += down.batches
            group.worked_us = max(group.worked_us, down.worked_us)
            live = group.live.get(down.slot)
            if live is not None and live.incarnation == down.incarnation:
                del group.live[down.slot]

    def on_ended(self, number: int, error: str | None, now_us: int) -> list[GroupCommand]:
        """Spark says that a group's job has ended."""
        group = self._groups.pop(number, None)
        if group is None:
            return []
        if not group.ending:
            self.error = error or (None if group.seen else "its tasks ended before they began")
        if self.error is not None and not group.ending:
            self._fail(self.error, now_us, began=bool(group.seen))
            return []
        up_us = group.up_us if group.up_us is not None else now_us
        schedule_us = up_us - group.submitted_us
        execute_us = group.worked_us
        whole = group.batches >= group.size  # at least one task did all it was given: the time was spent on work
        if whole and not group.ending:
            # The first group comes up while Spark itself does: its time says nothing of those that follow.
            if not self._fixed and number > 1:
                self._tuned = tune(self._tuned, schedule_us, execute_us)
            share = schedule_us / max(1, schedule_us + execute_us)
            self.finished.append(
                GroupFigures(
                    number, group.slots, group.size, schedule_us / 1e3, execute_us / 1e3, group.batches, round(share, 4)
                )
            )
            del self.finished[:-FIGURES_MAX]
        # Work goes to the oldest group's slots: one that outlives a later group has been given up by the workers.
        return self._end([each for each in self._groups.values() if each.number < number]) if whole else []

    def _fail(self, error: str, now_us: int, *, began: bool) -> None:
        self._retry_at_us = now_us + self._retry_us
        self._retry_us *= 2
        self._failures = 0 if began else self._failures + 1
        if self._failures >= FAILURES_MAX:
            self.given_up = error

    def give_way(self, now_us: int) -> list[GroupCommand]:
        """End all groups: a worker needs a place in the cluster, and they may hold the last ones."""
        self._retry_at_us = max(self._retry_at_us, now_us + RETRY_US_MIN)
        return self._end(list(self._groups.values()))

    @staticmethod
    def _end(groups: list[_Group]) -> list[GroupCommand]:
        commands: list[GroupCommand] = []
        for group in groups:
            if not group.ending:
                group.ending = True
                commands += [TellSlot(up.incarnation, s.End(at_once=False)) for up in group.live.values()]
        return commands

    def tick(self, now_us: int) -> list[GroupCommand]:
        """Submit what is missing, end what is too much."""
        commands: list[GroupCommand] = []
        for group in self._groups.values():
            if group.up_us is None and now_us - group.submitted_us > UP_US_MAX:
                group.up_us = now_us
        if self._is_work:
            self._worked_us = now_us
        is_calm = not self._all_slots and (self._worked_us is None or now_us - self._worked_us > self._calm_us)
        live = [each for each in self._groups.values() if not each.ending]
        if not self._wanted or self.given_up is not None:
            return commands + self._end(live)
        small = [each for each in live if self._is_small(each)]
        whole = [each for each in live if not self._is_small(each)]
        if is_calm:
            commands += self._end(whole if self.slots > CALM_SLOTS else [])
        elif any(each.up_us is not None for each in whole):
            commands += self._end(small)
        live = [each for each in live if not each.ending]
        counted = live if is_calm else whole  # the work of a burst is not for the small one
        if len(counted) < self._wanted and now_us >= self._retry_at_us and all(g.up_us is not None for g in live):
            slots = min(CALM_SLOTS, self.slots) if is_calm else self.slots
            group = _Group(self._next, slots, self.size, now_us)
            self._groups[group.number] = group
            self._next += 1
            commands.append(Submit(group.number, group.slots, group.size))
        return commands
