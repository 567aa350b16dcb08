"""How many workers a job should have: looks at their load at every interval, decides within bounds, says why. Pure.

`control/loads.py` measures, the law in `control/laws/workers.py` says what is needed, here it is decided, and
`Rescaling.want` carries it out. Workers are the last to act, because they cost most:

===================  ================================================================================================
who                  when
===================  ================================================================================================
the batch form       looks every 100 ms. While a range changes form the looks here do not count; while one is in batch
                     form no worker leaves, and one joins only if the workers are busy all the same
replicas             look at every td. Where a range may have more of them, the load must stay for a td longer
workers (here)       `UP_LOOKS` looks in a row want more, nothing is on the move, and somebody is busy
===================  ================================================================================================

===================================================  ================================================================
what is seen                                         what is done
===================================================  ================================================================
fewer workers than the least, or than the user wants  so many are wanted: one was lost for good
the law wants another number, twice or ten times      that is wanted, within the bounds
a worker that was ordered does not come for long      the job goes on as it is; more are not tried again for a while
columns are on the move, a recovery, a switch         looks begin anew
the user has said how many                            nothing, until the user leaves it to the job again
===================================================  ================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil

import msgspec

from penstock.control.hot_groups import HotGroup
from penstock.control.laws.forecast import Forecast
from penstock.control.laws.workers import DRAIN_S, FULL, Headcount, Load, packed
from penstock.control.loads import Loads, Look
from penstock.control.shifting import ShiftReport
from penstock.pipeline.plan import Plan

COMPUTES_MIN = 0.5
"""Workers that use the processor for this share of their time compute: more of them than cores gain nothing."""
JOIN_US_MAX = 30_000_000
"""A worker that the job has ordered for itself and that does not come for so long is not waited for."""
RETRY_US = 60_000_000
"""After so long the job tries again to get more."""
AHEAD_LOOKS = 3
"""How many looks ahead the forecast says: about as long as a worker takes to start."""
DECISIONS_MAX = 1_000


class ScaleReport(msgspec.Struct):
    """A number of workers that the job has given itself, as reports show it."""

    at_s: float
    before: int
    workers: int
    reason: str
    inputs: dict[str, float]


class StaffingView(msgspec.Struct):
    """The workers of a job: how many, how busy, and by whose word.

    Attributes
    ----------
    present, wanted : int
        Workers that have instances, and those that the job is to have.
    least, most : int
        Bounds within which the job chooses; equal ones: it does not.
    pinned : bool
        Whether the user has settled the number while the job runs.
    utilisation : dict of int to float
        By worker: the share of its time for which it was busy of late. Waiting for room in an output does not count.
    columns : dict of int to float
        By instance number: the share of a worker's time that it keeps busy.
    reason : str
        Why the last number was chosen, if the job has chosen one.
    note : str
        What keeps more workers from helping, if something does.
    """

    present: int
    wanted: int
    least: int
    most: int
    pinned: bool = False
    utilisation: dict[int, float] = {}
    columns: dict[int, float] = {}
    reason: str = ""
    note: str = ""
    decisions: list[ScaleReport] = []
    hot: list[HotGroup] = []
    """Key groups that have more than their share of an operation's records."""
    shifts: list[ShiftReport] = []
    """Key groups that have gone from one instance to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What there is to know of scheduler and control loop at a look.

    Attributes
    ----------
    members : collection of int
        Workers that have instances.
    wanted : int
        Workers that the job is to have.
    joining : bool
        Whether some of them have not come up.
    moving : bool
        Whether columns are on the move, or about to be.
    running : bool
        Whether all workers do their work.
    switching, in_batch : bool
        Whether a range changes form or replicas; whether one is in batch form.
    replicas_left : bool
        Whether a range could have more replicas than it has.
    """

    members: Collection[int]
    wanted: int
    joining: bool = False
    moving: bool = False
    running: bool = True
    switching: bool = False
    in_batch: bool = False
    replicas_left: bool = False


@dataclass(slots=True)
class Staffing:
    """Decides for one job.

    Parameters
    ----------
    cores : int
        Processor cores that workers share.
    """

    plan: Plan
    cores: int
    loads: Loads
    pin: int | None = None
    """How many workers the user has settled while the job runs."""
    look: Look | None = None
    decisions: list[ScaleReport] = field(default_factory=list)
    note: str = ""
    _chooses: bool = False
    _bounds: tuple[int, int] = (1, 1)
    _law: Headcount = field(default_factory=Headcount)
    _forecast: Forecast = field(default_factory=lambda: Forecast(AHEAD_LOOKS))
    _looked_us: int = 0
    _joining_us: int | None = None
    """Since when a worker that was ordered is waited for."""
    _ceiling: tuple[int, int] | None = None
    """More workers than these do not come, and until when that is believed."""
    _advised: int = 0

    def __post_init__(self) -> None:
        options = self.plan.options
        self._chooses = bool(options.workers_most)
        self._bounds = (self.plan.workers, options.workers_most or self.plan.workers)

    def settle(self, workers: int) -> None:
        """The user says how many workers there are to be; 0: the job chooses, within its bounds or else any number."""
        self._law.forget()
        self.pin = workers or None
        if not workers and not self._chooses:
            self._chooses, self._bounds = True, (1, self.plan.options.parallelism)

    @property
    def is_wanted(self) -> bool:
        """Whether it is the user who wants as many workers as there are to be."""
        return self.pin is not None or not self._chooses

    def tick(self, at: Standing, at_s: float, now_us: int) -> ScaleReport | None:
        """Look, if an interval has passed; return another number of workers, if there should be one."""
        if not at.running:
            self._law.forget()
            return None
        least = self.pin or self._bounds[0]
        if self._chooses and at.wanted < least:
            told = f"{least} workers are wanted" if self.pin else f"at least {least} workers are asked for"
            return self._decide(at, least, f"{told}, and {at.wanted} are left", {}, at_s)
        if (given_up := self._watch_joining(at, at_s, now_us)) is not None:
            return given_up
        if now_us - self._looked_us < self.plan.options.worker_interval_us:
            return None
        look = self.loads.look(at.members)
        if look is None:
            return None
        self._looked_us, self.look = now_us, look
        self._forecast.add(look.arrived / look.seconds)
        if at.moving or at.switching:
            self._law.forget()
            return None
        return self._judge(at, look, at_s, now_us)

    def _judge(self, at: Standing, look: Look, at_s: float, now_us: int) -> ScaleReport | None:
        load = self._load(look)
        least, most = self._bounds
        self.note = self._hot(load)
        if not self._chooses or self.pin is not None:
            return None
        if look.cpu >= COMPUTES_MIN and self.cores < most:
            most = max(least, self.cores)
        if self._ceiling is not None and now_us >= self._ceiling[1]:
            self._ceiling = None
        if self._ceiling is not None:
            most = max(least, min(most, self._ceiling[0]))
        if at.joining:
            most = max(least, min(most, at.wanted))
        if at.in_batch:
            least = max(least, min(at.wanted, most))
        patience = ceil(self.plan.options.replica_interval_us / self.plan.options.worker_interval_us) + 1
        need = self._law.decide(
            load, present=at.wanted, least=least, most=most, patience=patience if at.replicas_left else 0
        )
        if need.workers == at.wanted:
            self._advised = 0
            return None
        inputs = {
            "work": round(need.work, 3),
            "busiest": round(load.busiest, 3),
            "arrival_eps": round(look.arrived / look.seconds, 1),
            "taken_eps": round(look.taken / look.seconds, 1),
            "waiting": float(look.waiting),
            "ahead": round(load.ahead, 3),
        }
        return self._decide(at, need.workers, self._reason(look, load, need.work, need.workers), inputs, at_s)

    def _decide(
        self, at: Standing, workers: int, reason: str, inputs: Mapping[str, float], at_s: float
    ) -> ScaleReport | None:
        """Make a decision; where the user only wants advice, each one once."""
        if self.plan.options.advise and self._advised == workers:
            return None
        self._advised = workers
        report = ScaleReport(round(at_s, 3), at.wanted, workers, reason, dict(inputs))
        if not self.plan.options.advise:
            self._law.forget()
            self.decisions.append(report)
            del self.decisions[:-DECISIONS_MAX]
        return report

    def _watch_joining(self, at: Standing, at_s: float, now_us: int) -> ScaleReport | None:
        """Stop waiting for a worker that does not come, unless the user wants it or there are too few."""
        present = len(at.members)
        if not at.joining or self.is_wanted or present < self._bounds[0] or present >= at.wanted:
            self._joining_us = None
            return None
        self._joining_us = now_us if self._joining_us is None else self._joining_us
        if now_us - self._joining_us < JOIN_US_MAX:
            return None
        self._joining_us = None
        self._ceiling = present, now_us + RETRY_US
        reason = f"Spark has started no other worker within {JOIN_US_MAX // 1_000_000} s: no core is free"
        return self._decide(at, present, reason, {}, at_s)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def _load(self, look: Look) -> Load:
        busy = sum(look.workers.values())
        now_eps = look.arrived / look.seconds
        return Load(
            columns=look.columns,
            busiest=max(look.workers.values(), default=0.0),
            demand=look.arrived / look.taken if look.taken > 0 else 1.0,
            backlog=look.waiting * busy * look.seconds / look.taken / DRAIN_S if look.taken > 0 else 0.0,
            ahead=self._forecast.ahead() / now_eps if now_eps > 0.0 else 1.0,
        )

    @staticmethod
    def _reason(look: Look, load: Load, work: float, workers: int) -> str:
        mean = sum(look.workers.values()) / max(1, len(look.workers))
        come = f"{look.arrived / look.seconds:,.0f}/s come"
        if load.ahead > 1.05:
            come += f" ({load.ahead * look.arrived / look.seconds:,.0f}/s are expected)"
        waiting = f", {look.waiting:,} wait" if look.waiting * 10 > look.arrived else ""
        busy = f"workers are {mean:.0%} busy, the busiest {load.busiest:.0%}"
        return f"{busy}; {come}{waiting}: {work:.1f} workers' work, for {workers}"

    @staticmethod
    def _hot(load: Load) -> str:
        """Say so where one instance keeps a worker busy alone, and others would not help."""
        if not load.columns:
            return ""
        column = max(load.columns, key=load.columns.__getitem__)
        share = load.columns[column] / (sum(load.columns.values()) or 1.0)
        loads = [load.factor * each for each in load.columns.values()]
        if load.busiest < FULL or len(loads) < 2 or packed(loads, len(loads)) <= FULL or share * len(loads) < 2.0:
            return ""
        return f"instance {column} has {share:.0%} of the work, and one worker's time is its most"

    def view(self, members: Collection[int], wanted: int) -> StaffingView:
        """How it stands."""
        look, last = self.look, self.decisions[-1] if self.decisions else None
        least, most = self._bounds if self._chooses else (wanted, wanted)
        return StaffingView(
            present=len(members),
            wanted=wanted,
            least=least,
            most=most,
            pinned=self.pin is not None,
            utilisation={w: round(each, 3) for w, each in sorted(look.workers.items())} if look is not None else {},
            columns={c: round(each, 3) for c, each in sorted(self.loads.columns.items())},
            reason=last.reason if last is not None else "",
            note=self.note,
            decisions=list(self.decisions),
        )
