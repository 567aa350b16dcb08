"""How many replicas each range of operations should have: PS-1 at every interval, in bounds, with reasons. Pure.

Monitor, analyse, plan, execute (PS-4): `control/elastic.py` monitors, the law analyses in graph order, here it is
planned, and `Replication.want` executes. Who acts, in the order of what it costs:

==========================  ==========================================================================================
who                         when
==========================  ==========================================================================================
the batch form (`forms`)    a queue is longer than L_up now, and batches carry more: a burst that nobody has foreseen.
                            It looks ten times as often, so it comes first. A range in batch form has no replicas.
replicas (here)             the rate that is seen or expected needs more than the worker itself, before a queue is long
workers (`staffing`)        replicas are at their bound and workers are still busy: ordered within the user's bounds, if
                            there are some, else said in a note
==========================  ==========================================================================================

They do not fight: a range in batch form has no replicas, and what is wanted for it takes effect when it comes back;
replicas count for what the record form carries, so the switch point moves with them; both have their own hysteresis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.control.laws.ds2 import ds2
from penstock.control.laws.forecast import Forecast
from penstock.control.laws.replicas import OURS, Need, Operator, Policy, Predictive
from penstock.control.laws.threshold import Threshold
from penstock.control.replicas import DEGREE_MIN
from penstock.pipeline.options import ReplicaLaw
from penstock.pipeline.ranges import Range

HOLD_LOOKS = 2
"""Replicas are given back when so many intervals in a row had no use for them."""
NOTES_MAX = 1_000
STRAINED_SHARE = 0.5
"""Records that wait for longer than this share of an interval, at full strength, are worth a note."""
HERE = 0
"""Degree of a range that its worker computes itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeMeasure:
    """A range of a unit's operations that may have replicas, as it is now.

    Attributes
    ----------
    range : Range
        Its place in the chain.
    processes : int
        Workers that have instances of the unit, each of which computes the range itself while there are no replicas.
    degree : int
        Replicas that are active; 0: it is computed in the worker.
    least, most : int
        Bounds of the user, or of the job. Equal ones are a pin.
    in_batch : bool
        It is in batch form, or on its way there or back: what is wanted takes effect when it is in record form.
    cores : int, optional
        Replicas that can be busy at a time, if the operations compute; None if they wait.
    """

    unit: int
    names: tuple[str, ...]
    range: Range
    processes: int
    degree: int
    least: int
    most: int
    in_batch: bool = False
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class WantedReplicas:
    """A number of replicas for a range, and why."""

    unit: int
    names: tuple[str, ...]
    range: Range
    before: int
    degree: int
    reason: str
    inputs: dict[str, float] = field(default_factory=dict)


class Replicator:
    """Decides how many replicas each range has; call it once in every interval.

    Parameters
    ----------
    pool : int
        Replicas that there are for all ranges together.
    interval_us : int
        td.
    law : ReplicaLaw
        Another one than ours, to be compared with it; pool, bounds and reasons are the same for all.
    """

    def __init__(
        self,
        pool: int,
        interval_us: int,
        policy: Policy = OURS,
        hold: int = HOLD_LOOKS,
        law: ReplicaLaw = ReplicaLaw.PREDICTIVE,
    ) -> None:
        self.notes: list[str] = []
        self.needs: dict[str, Need] = {}
        """What the law said at the last look, by unit."""
        self._pool = pool
        self._interval_us = interval_us
        self._policy = policy
        self._law = Predictive(policy, Forecast(), hold)
        self._kind = law
        self._threshold = Threshold()
        self._noted: dict[int, str] = {}
        self._wanted: dict[int, int] = {}

    @property
    def expected(self) -> float:
        """Records that are expected from outside in the next interval."""
        return self._law.expected

    def settle(self, unit: int, degree: int) -> None:
        """Somebody else has decided: what is wanted next is compared with that."""
        self._wanted[unit] = degree if degree >= DEGREE_MIN else HERE

    def decide(
        self, now_us: int, operators: Sequence[Operator], ranges: Sequence[RangeMeasure], incoming: float
    ) -> list[WantedReplicas]:
        """Take an interval's figures of every unit, named by its number, and say what should change.

        ``execution_us`` of a unit's operator is the time that its range takes for one record that enters the unit.
        """
        by_unit = {each.unit: each for each in ranges}
        sized = [self._sized(each, by_unit.get(int(each.name))) for each in operators]
        self.needs = self._needs(sized, incoming)
        wanted = {each.unit: self._degree(each, self.needs[str(each.unit)]) for each in ranges}
        shared = share_out(self._pool, wanted, {each.unit: each.least for each in ranges})
        granted = {number: count if count >= DEGREE_MIN else HERE for number, count in shared.items()}
        figures = {each.name: each for each in operators}
        found = []
        for each in ranges:
            own, need = figures[str(each.unit)], self.needs[str(each.unit)]
            self._watch(now_us, each, own, need, granted[each.unit])
            if granted[each.unit] == self._wanted.get(each.unit, HERE):
                continue
            self._wanted[each.unit] = granted[each.unit]
            found.append(
                WantedReplicas(
                    each.unit,
                    each.names,
                    each.range,
                    each.degree,
                    granted[each.unit],
                    self._reason(each, own, need, granted[each.unit]),
                    self._inputs(own, need, incoming),
                )
            )
        return found

    def _needs(self, operators: Sequence[Operator], incoming: float) -> dict[str, Need]:
        """What the law says; of another law, its number of replicas beside the figures of ours."""
        found = self._law.decide(operators, self._interval_us, incoming)
        match self._kind:
            case ReplicaLaw.PREDICTIVE:
                return found
            case ReplicaLaw.DS2:
                counts = ds2(operators, self._interval_us, incoming=incoming)
            case ReplicaLaw.THRESHOLD:
                counts = self._threshold.decide(operators, self._interval_us)
        return {name: replace(need, replicas=counts[name]) for name, need in found.items()}

    # --- one range ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _sized(own: Operator, at: RangeMeasure | None) -> Operator:
        """The operator with the replicas that it has: workers that compute a range themselves count as replicas."""
        if at is None:
            return own
        most = at.most if at.cores is None else min(at.most, max(at.cores, at.least))
        return replace(own, replicas=at.degree or at.processes, least=1, most=max(1, most))

    @staticmethod
    def _degree(at: RangeMeasure, need: Need) -> int:
        """Replicas for a need: none where the workers do it themselves and nobody has asked for some."""
        if at.least == at.most:
            return at.least if at.least >= DEGREE_MIN else HERE
        if need.replicas <= at.processes and at.least < DEGREE_MIN:
            return HERE
        return max(at.least, need.replicas)

    def _reason(self, at: RangeMeasure, own: Operator, need: Need, granted: int) -> str:
        if at.least == at.most:
            return f"pinned to {at.most} replicas" if at.most >= DEGREE_MIN else "pinned to the worker itself"
        seconds = self._interval_us / 1e6
        coming = need.received / seconds
        load = f"{coming:,.0f}/s" + (f" and {need.queued:,.0f} that wait" if need.queued >= 1 else "")
        seen = own.arrived / seconds
        ahead = f" (expected; now {seen:,.0f}/s)" if coming > 1.05 * seen else ""
        work = f"{load}{ahead} at {own.execution_us / 1_000:.3g} ms a record are {need.work:.1f} replicas' work"
        if granted == HERE:
            return f"{work}: the worker does it itself"
        short = f", {need.replicas} wanted" if need.replicas > granted else ""
        return f"{work}: {granted} of {self._pool}{short}"

    def _inputs(self, own: Operator, need: Need, incoming: float) -> dict[str, float]:
        return {
            "lambda_G": round(incoming, 1),
            "expected": round(self.expected, 1),
            "theta": round(need.share, 4),
            "received": round(need.received, 1),
            "queued": round(need.queued, 1),
            "et_ms": round(own.execution_us / 1_000, 3),
            "td_ms": round(self._interval_us / 1_000, 3),
            "work": round(need.work, 3),
            "replicas": need.replicas,
        }

    def _watch(self, now_us: int, at: RangeMeasure, own: Operator, need: Need, granted: int) -> None:
        """Say so, once, where replicas cannot do what is needed."""
        waits = own.queue * own.execution_us > STRAINED_SHARE * self._interval_us * max(1, granted)
        text = ""
        if not at.in_batch and waits and at.least != at.most and granted >= min(at.most, self._pool):
            text = f"{', '.join(at.names)}: {granted} replicas are the most, {need.work:.1f} would be busy; "
            text += "more replicas, or more workers, would help"
        elif not at.in_batch and at.cores is not None and need.work > at.cores and own.queue >= 1:
            text = f"{', '.join(at.names)}: computes all the time, and there are {at.cores} cores; "
            text += "more workers on other machines would help"
        if text and self._noted.get(at.unit) != text.partition(":")[2][:20]:
            self.notes.append(f"{now_us / 1e6:.3f} s: {text}")
            del self.notes[:-NOTES_MAX]
        self._noted[at.unit] = text.partition(":")[2][:20]


def share_out(pool: int, wanted: Mapping[int, int], least: Mapping[int, int]) -> dict[int, int]:
    """Give every range what it wants, and where the pool is too small to each by what it wants, not below its least.

    Examples
    --------
    >>> share_out(8, {0: 3, 1: 4}, {})
    {0: 3, 1: 4}
    >>> share_out(8, {0: 4, 1: 12}, {})
    {0: 2, 1: 6}
    """
    total = sum(wanted.values())
    if total <= pool:
        return dict(wanted)
    given = {unit: min(want, least.get(unit, 0)) for unit, want in wanted.items()}
    left = max(0, pool - sum(given.values()))
    rest = {unit: want - given[unit] for unit, want in wanted.items()}
    open_ = sum(rest.values())
    exact = {unit: left * more / open_ if open_ else 0.0 for unit, more in rest.items()}
    for unit, more in exact.items():
        given[unit] += int(more)
    over = left - sum(int(more) for more in exact.values())
    for unit in sorted(exact, key=lambda each: (int(exact[each]) - exact[each], each))[:over]:
        given[unit] += 1
    return given
