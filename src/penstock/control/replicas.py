"""Replicas of ranges of operations: the pool that stands by, who of it computes what, and what they report. Pure.

The pool is one Spark job with a task for each replica. Which ranges have how many of them is for others to say, by
`Replication.want`: the user's ``replicas=``, and the law.

=========  ==============================================  =======================================================
pool       event                                           effect
=========  ==============================================  =======================================================
NONE       replicas may be wanted, all workers are there   Submit: a task for each replica
COMING UP  SlotUp from its tasks                           they hear who the workers are, and stand by
UP         a task is lost                                  Spark starts it again: the same number, another process
any        its Spark job ends, or fails                    workers forget it; the next is submitted later, and later
any        a worker needs a place in the cluster           End to its tasks; the next is submitted later
=========  ==============================================  =======================================================

=========  ==============================================  =======================================================
range      event                                           effect
=========  ==============================================  =======================================================
here       a degree of 2 or more is wanted, and so many,   Switch to as many replicas as are known to all workers,
           or at least 2, are known to all workers         those with the fewest ranges first
replicas   another degree is wanted                        the same Switch with other replicas
replicas   a degree of 1 is wanted, or fewer than 2        Switch: here
           replicas have been known for a while
slots      any                                             nothing; what is wanted takes effect on the way back
=========  ==============================================  =======================================================

The degree is the number of processes that compute the range. One is the worker itself, so a degree of 1 is the way
*here*: a single replica would add the way to it and back, and no capacity.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.control.asked import bounds, ranges_of
from penstock.control.changes import Advice
from penstock.control.groups import GroupCommand, Submit, TellSlot
from penstock.control.switches import Switches
from penstock.errors import InvalidOption
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.pipeline.ranges import NONE, Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.pulses import ReplicaPulse, UnitPulse

DEGREE_MIN = 2
"""Fewer replicas than that are no gain."""
KNOWN_US = 2_000_000
"""A replica that all workers knew so long ago still counts: a worker that is started again learns of it soon."""
RETRY_US_MIN = 1_000_000
"""Before the next pool after one that failed; twice as long after each in a row."""
FAILURES_MAX = 4
"""Pools in a row of which no task could begin; the next one would fail alike."""
RATE_WINDOW_US = 1_000_000
"""Rates and execution times are those of so long."""
ACTIVATIONS_MAX = 1_000
"""Activations whose times are remembered for reports."""
ALIVE_US_SHARE = 3
"""So often in the time after which they would end, replicas hear that the driver lives: each time wakes them up."""


WAITS_US_MIN = 1_000
WAITS_SHARE = 0.2
"""An operation that takes longer than this and uses less of it as processor time waits for others."""


class ReplicasView(msgspec.Struct):
    """The replicas of one range, for the live view, reports and the law.

    Attributes
    ----------
    degree : int
        Replicas that compute it now; 0: the worker does, in each instance.
    wanted : int
        Those that are wanted; 1: the worker itself.
    arrival_eps, service_eps : float
        Records that come to the range and leave it, each second (λ and μ).
    queue_records : int
        Records that wait before the unit.
    record_us, cpu_us : float
        Execution time of a record and the processor time of that; the rest is waiting.
    utilisation : dict
        U of each active replica, by number: what all instances together have given it.
    activations : int
        How often replicas became active.
    activation_ms : list of float
        Of the last activations that were decided while the replica stood by: from the decision until the replica began
        its first item. It includes waiting for an item to come.
    pinned : bool
        Whether the user has settled the number.
    asked : bool
        Whether the pipeline asks for replicas of it: `penstock replicate` can settle their number.
    """

    operations: list[str]
    degree: int
    wanted: int
    least: int
    most: int
    replicas: list[int]
    arrival_eps: float = 0.0
    service_eps: float = 0.0
    queue_records: int = 0
    record_us: float = 0.0
    cpu_us: float = 0.0
    utilisation: dict[int, float] = {}
    activations: int = 0
    reason: str = ""
    activation_ms: list[float] = []
    pinned: bool = False
    asked: bool = False

    @property
    def advice(self) -> str:
        """What the user should know: a function that waits needs no processes of its own."""
        if self.record_us < WAITS_US_MIN or self.cpu_us > WAITS_SHARE * self.record_us:
            return ""
        share = 100 * (1 - self.cpu_us / self.record_us)
        return (
            f"{', '.join(self.operations)} waits for {share:.0f} % of its time: map_async() needs no replicas for that"
        )


@dataclass(slots=True)
class _Want:
    """What a unit is to have."""

    range: Range
    degree: int
    reason: str
    inputs: dict[str, float]
    decided_us: int | None = None
    advised: int = 0


@dataclass(slots=True)
class _Pool:
    number: int
    live: dict[int, s.SlotUp] = field(default_factory=dict)
    began: bool = False
    ending: bool = False


class Replication:
    """Keeps the pool up, and has units use as many replicas as are wanted.

    Parameters
    ----------
    switches : Switches
        Carries out what is ordered here, as it does for slots.
    """

    def __init__(self, plan: Plan, switches: Switches) -> None:
        self.size = plan.replicas
        """Replicas of the pool; 0: there are none."""
        self.error: str | None = None
        self.given_up: str | None = None
        self._plan = plan
        self._switches = switches
        self._wants: dict[int, _Want] = {}
        self._activations: Counter[int] = Counter()
        self._activating: dict[tuple[int, int], int] = {}
        """By unit and replica that has been given no item yet: when it was decided that it should be."""
        self._activation_ms: dict[int, deque[float]] = {}
        self._given: dict[int, tuple[int, ...]] = {}
        """By unit: the replicas that it was given last."""
        self._pool: _Pool | None = None
        self._pools = 0
        self._retry_at_us = 0
        self._retry_us = RETRY_US_MIN
        self._failures = 0
        self._peers: list[m.Peer] = []
        self._start_us = 0
        self._alive_us = 0
        self._seen: dict[int, frozenset[int]] = {}
        """By worker: the replicas that it knows."""
        self._known_us: dict[int, int] = {}
        """By replica: when all workers last knew it."""
        self._pins: dict[int, int] = {}
        """By unit: how many processes the user wants, whatever the law says."""
        self._looks: dict[tuple[int, int], deque[tuple[int, UnitPulse]]] = {}
        for unit in plan.units:
            for chosen, (least, _) in bounds(unit).items():
                if least >= DEGREE_MIN:
                    names = ", ".join(unit.display_at(i) for i in chosen)
                    self.want(unit.id, chosen, least, f"at least {least} replicas are asked for {names}")

    # --- what is wanted -----------------------------------------------------------------------------------------------

    def want(
        self,
        unit: int,
        chosen: Range,
        degree: int,
        reason: str,
        inputs: Mapping[str, float] | None = None,
        now_us: int | None = None,
    ) -> int:
        """Have so many processes compute a range from now on; 1: the worker itself. Return how many it will be.

        What the user has asked for an operation of the range bounds it, and so does the pool's size. ``now_us`` is
        when that was decided, from which activations are measured.

        Raises
        ------
        InvalidOption
            If replicas cannot run the range.
        """
        spec = self._plan.units[unit]
        if not all(index in spec.replicable for index in chosen):
            names = ", ".join(spec.display_at(index) for index in chosen)
            allowed = ", ".join(spec.display_at(index) for index in spec.replicable) or "none of this chain"
            raise InvalidOption(option="operations in replicas", given=names, allowed=allowed)
        least, most = self.bounds(unit, chosen)
        degree = max(1, least, min(degree, most))
        held = self._wants.get(unit)
        if held is None or (held.range, held.degree) != (chosen, degree):
            self._wants[unit] = _Want(chosen, degree, reason, dict(inputs or {}), now_us)
        return degree

    def obey(self, operation: str, degree: int | None, now_us: int) -> list[tuple[int, int]]:
        """Settle how many processes compute an operation that replicas are asked for, or leave it to others (None).

        Returns the units that this is about, and how many processes each is to have now.
        """
        found = []
        for unit, chosen in ranges_of(self._plan, operation):
            if degree is None:
                self._pins.pop(unit, None)
            else:
                least, most = self._asked(unit, chosen)
                self._pins[unit] = degree = max(1, least, min(degree, most))
                self.want(unit, chosen, degree, f"{degree} are wanted", now_us=now_us)
            found.append((unit, held.degree if (held := self._wants.get(unit)) is not None else 1))
        return found

    def bounds(self, unit: int, chosen: Range) -> tuple[int, int]:
        """The least and the most processes that a range may have: the same where the user has settled the number."""
        pinned = self._pins.get(unit)
        return self._asked(unit, chosen) if pinned is None else (pinned, pinned)

    def _asked(self, unit: int, chosen: Range) -> tuple[int, int]:
        """What users have asked for when the job was made, within the pool."""
        asked = [
            op.replicas for op in self._plan.units[unit].ops[chosen.first : chosen.last + 1] if op.replicas is not None
        ]
        if not asked:
            return 1, max(1, self.size)
        return max(least for least, _ in asked), min(self.size, max(most for _, most in asked))

    @property
    def is_left(self) -> bool:
        """Whether some replicas of the pool compute nothing."""
        active = {number for unit in self._plan.units for number in self._switches.replicas(unit.id)[1]}
        return self.given_up is None and len(active) < self.size

    def degree(self, unit: int) -> int:
        """How many replicas compute the unit's range now; 0: the worker does."""
        return len(self._switches.replicas(unit)[1])

    def instead_of_here(self, unit: int, now_us: int) -> tuple[Range, tuple[int, ...]]:
        """Where a unit goes that has no reason for slots any more: a range, and the replicas."""
        want = self._wants.get(unit)
        chosen = self._chosen(unit, want, now_us) if want is not None else ()
        return (want.range, chosen) if want is not None and chosen else (NONE, ())

    def begin(self, at_s: float, now_us: int, *, advise: bool = False) -> list[Advice]:
        """Begin the switches that lead to what is wanted; with ``advise`` only return what they would be."""
        advice: list[Advice] = []
        self._look(now_us)
        for unit, want in self._wants.items():
            if self._switches.range(unit) or self._switches.busy(unit):
                continue  # in batch form, or on the way somewhere
            spec, chosen = self._plan.units[unit], self._chosen(unit, want, now_us)
            target = want.range if chosen else NONE
            present_range, present = self._switches.replicas(unit)
            if (present_range, present) == (target, chosen):
                continue
            if advise:
                if want.advised != want.degree:
                    want.advised = want.degree
                    names = [spec.name_at(i) for i in want.range]
                    told = f"{want.degree} replicas"
                    advice.append(
                        Advice(at_s=round(at_s, 3), operations=names, to=told, reason=want.reason, inputs=want.inputs)
                    )
                continue
            reason = want.reason
            if DEGREE_MIN <= want.degree > len(chosen):
                reason += f" ({len(chosen)} of {want.degree} replicas are up)"
            new = set(chosen) - set(present)
            self._activations[unit] += len(new)
            self._activating = {at: us for at, us in self._activating.items() if at[0] != unit or at[1] in chosen}
            if want.decided_us is not None and len(chosen) == want.degree:
                self._activating.update(((unit, number), want.decided_us) for number in new)
            self._given[unit] = chosen
            self._switches.begin(spec, target, reason, want.inputs, at_s, now_us, chosen)
        return advice

    def _chosen(self, unit: int, want: _Want, now_us: int) -> tuple[int, ...]:
        """The replicas for a unit: those that it has first, then those with the fewest ranges; none: here."""
        known = [each for each in self._known_us if now_us - self._known_us[each] <= KNOWN_US]
        if want.degree < DEGREE_MIN or len(known) < DEGREE_MIN:
            return ()
        present = self._switches.replicas(unit)[1]
        taken = Counter(each for other, numbers in self._given.items() if other != unit for each in numbers)
        known.sort(key=lambda each: (each not in present, taken[each], each))
        return tuple(sorted(known[: want.degree]))

    def _look(self, now_us: int) -> None:
        """Note which replicas all workers know."""
        if self._peers and all(peer.worker in self._seen for peer in self._peers):
            everywhere = frozenset.intersection(*(self._seen[peer.worker] for peer in self._peers))
            for number in everywhere:
                self._known_us[number] = now_us

    # --- the pool -----------------------------------------------------------------------------------------------------

    @property
    def up(self) -> int:
        """Replicas whose tasks have started."""
        return len(self._pool.live) if self._pool is not None else 0

    @property
    def pids(self) -> list[int]:
        """Processes of the replicas."""
        return [up.pid for up in self._pool.live.values()] if self._pool is not None else []

    def know(self, peers: list[m.Peer], start_us: int) -> list[GroupCommand]:
        """Take note of who the workers are; replicas that are up hear it too."""
        if peers == self._peers and start_us == self._start_us:
            return []
        self._peers, self._start_us = list(peers), start_us
        return self._tell_all(s.Workers(peers=self._peers, start_us=start_us))

    def _tell_all(self, message: s.ToSlotFromDriver) -> list[GroupCommand]:
        live = self._pool.live.values() if self._pool is not None else ()
        return [TellSlot(up.incarnation, message) for up in live]

    def tick(self, silence_us: int, now_us: int) -> list[GroupCommand]:
        """Submit the pool if there is none; have its replicas know that the driver lives."""
        commands: list[GroupCommand] = []
        if self.size and self._pool is None and self.given_up is None and now_us >= self._retry_at_us:
            self._pools += 1
            self._pool = _Pool(-self._pools)
            commands.append(Submit(self._pool.number, self.size, 0))
        if now_us - self._alive_us >= silence_us // ALIVE_US_SHARE:
            self._alive_us = now_us
            commands += self._tell_all(s.StillThere())
        return commands

    def on_up(self, up: s.SlotUp) -> list[GroupCommand]:
        """A task has started."""
        pool = self._pool
        if pool is None or pool.number != up.group or pool.ending:
            return [TellSlot(up.incarnation, s.End(at_once=True))]
        pool.live[up.slot] = up
        pool.began = True
        self._failures, self._retry_us, self.error = 0, RETRY_US_MIN, None
        workers = s.Workers(peers=self._peers, start_us=self._start_us)
        return [TellSlot(up.incarnation, workers)] if self._start_us else []

    def on_down(self, down: s.SlotDown) -> None:
        """A task ends."""
        live = self._pool.live if self._pool is not None and self._pool.number == down.group else {}
        if down.slot in live and live[down.slot].incarnation == down.incarnation:
            del live[down.slot]

    def on_ended(self, number: int, error: str | None, now_us: int) -> None:
        """Spark says that a pool's job has ended."""
        pool = self._pool
        if pool is None or pool.number != number:
            return
        self._pool = None
        self._known_us.clear()
        self._seen.clear()
        if pool.ending:
            return
        self.error = error or (None if pool.began else "its tasks ended before they began")
        self._retry_at_us = now_us + self._retry_us
        self._retry_us *= 2
        self._failures = 0 if pool.began else self._failures + 1
        if self._failures >= FAILURES_MAX:
            self.given_up = self.error

    def give_way(self, now_us: int) -> list[GroupCommand]:
        """End the pool: a worker needs a place in the cluster, and it may hold the last ones."""
        self._retry_at_us = max(self._retry_at_us, now_us + RETRY_US_MIN)
        if self._pool is None or self._pool.ending:
            return []
        self._pool.ending = True
        return self._tell_all(s.End(at_once=False))

    # --- what is reported ---------------------------------------------------------------------------------------------

    def on_pulse(self, pulse: m.Pulse) -> None:
        """Take which replicas a worker knows, and what those of its ranges have done."""
        self._seen[pulse.worker] = frozenset(pulse.replicas)
        for each in pulse.units:
            if each.replicas is None:
                self._looks.pop((each.unit, each.instance), None)
                continue
            looks = self._looks.setdefault((each.unit, each.instance), deque())
            if looks and _is_other(looks[-1][1].replicas, each.replicas):
                looks.clear()  # rolled back, or another range
            looks.append((pulse.at_us, each))
            self._take_first(each.unit, each.replicas)
            while len(looks) > 2 and pulse.at_us - looks[1][0] >= RATE_WINDOW_US:
                looks.popleft()

    def _take_first(self, unit: int, replicas: ReplicaPulse) -> None:
        """Note how long it has taken until replicas that have become active began to work."""
        for number, began_us in replicas.began_us.items():
            decided_us = self._activating.get((unit, number))
            if decided_us is not None and began_us >= decided_us:
                del self._activating[unit, number]
                kept = self._activation_ms.setdefault(unit, deque(maxlen=ACTIVATIONS_MAX))
                kept.append((began_us - decided_us) / 1000)

    def forget_worker(self, worker: int) -> None:
        """A worker is lost: its successor has to learn of the replicas first."""
        self._seen.pop(worker, None)

    def view(self) -> list[ReplicasView]:
        """Every range that replicas are wanted for, or that users have bounded."""
        bounded = {
            unit.id: _Want(chosen, max(1, least), "", {})
            for unit in self._plan.units
            for chosen, (least, most) in bounds(unit).items()
            if most >= DEGREE_MIN
        }
        return [self._view(self._plan.units[unit], want) for unit, want in sorted((bounded | self._wants).items())]

    def _view(self, unit: UnitSpec, want: _Want) -> ReplicasView:
        chosen, present = want.range, self._switches.replicas(unit.id)[1]
        least, most = self._asked(unit.id, chosen)
        found = ReplicasView(
            [unit.display_at(index) for index in chosen],
            len(present), want.degree, least, most, list(present),
            activations=self._activations[unit.id], reason=want.reason,
            activation_ms=list(self._activation_ms.get(unit.id, ())), pinned=unit.id in self._pins,
            asked=chosen in bounds(unit),
        )  # fmt: skip
        looks = [self._looks.get((unit.id, instance), ()) for instance in range(unit.instances)]
        handled = busy_us = cpu_us = 0
        used: dict[int, float] = {}
        for each in looks:
            if not each:
                continue
            (from_us, before), (to_us, after) = each[0], each[-1]
            old, new = before.replicas, after.replicas
            assert old is not None
            assert new is not None
            found.queue_records += after.waiting + new.records_in - new.records_out
            for number, utilisation in new.utilisation.items():
                used[number] = used.get(number, 0.0) + utilisation
            passed_s = max(1, to_us - from_us) / 1e6
            found.arrival_eps += (new.records_in - old.records_in) / passed_s
            found.service_eps += (new.records_out - old.records_out) / passed_s
            if new.records_out == old.records_out:
                old = ReplicaPulse(range=old.range, records_in=0, records_out=0, busy_us=0, cpu_us=0, utilisation={})
            handled += new.records_out - old.records_out
            busy_us += new.busy_us - old.busy_us
            cpu_us += new.cpu_us - old.cpu_us
        found.record_us, found.cpu_us = busy_us / max(1, handled), cpu_us / max(1, handled)
        found.utilisation = {number: min(1.0, each) for number, each in sorted(used.items())}
        return found

    def waits(self) -> list[str]:
        """What is waited for, in words."""
        missing = [want for unit, want in self._wants.items() if want.degree > max(1, self.degree(unit))]
        if not missing or self.error is None:
            return []
        return [f"replicas, until then workers compute everything: {self.error}"]


def _is_other(before: ReplicaPulse | None, after: ReplicaPulse) -> bool:
    if before is None:
        return True
    return before.range != after.range or after.records_in < before.records_in
