"""Exchanges of alternatives: which one each operation is to use, from order to effect. Pure; the control loop asks.

=========  ========================================  =============================================  =========
operation  event                                     effect                                         next
=========  ========================================  =============================================  =========
STEADY     wanted: another  alternative              Exchange to all; to one that calls a function  EXCHANGING
                                                     when the unit is in record form, seen to
EXCHANGING wanted: a third  one, or back             Exchange to all, under a new number            EXCHANGING
EXCHANGING Changed by every instance                 the exchange is done, and measured             STEADY
any        wanted: the one that was wanted last      nothing                                        same
any        a recovery is over                        Exchange to all again: rebuilt instances have  same
                                                     the alternative of their snapshot
any        a commit is recorded                      it names what was wanted last , and whether    same
                                                     the user has
=========  ========================================  =============================================  =========

A job that is started again begins with what its commit names, under a new number. An alternative that had not taken
over by then, because it was still warmed up, begins to be warmed up again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.control.changes import CHANGES_MAX, ChangeReport
from penstock.control.events import WantedAlternative
from penstock.errors import InvalidOption, nearest
from penstock.operators.alternatives import Alternatives
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

AUTO = "auto"


class AlternativesView(msgspec.Struct):
    """The alternatives of one operation, for reports and the live view."""

    names: list[str]
    active: str
    """The one that computes now; in an exchange, still the one before."""
    wanted: str
    pinned: bool
    costs_us: dict[str, float] = msgspec.field(default_factory=dict)
    """What a record costs in each, as far as that is known."""
    out: dict[str, str] = msgspec.field(default_factory=dict)
    """Those that have failed and are not used for a while, with the error."""


@dataclass(slots=True)
class _Pending:
    since_us: int
    record: ChangeReport
    waiting: set[int]
    before: str


@dataclass(slots=True)
class Standing:
    """One operation that has alternatives."""

    name: str
    unit: int
    index: int
    of: Alternatives
    instances: int
    active: str
    """WantedAlternative by every instance."""
    wanted: str
    number: int = 0
    """Of the last exchange; 0: there was none, every instance has begun with it."""
    pin: str | None = None
    """What the user has pinned."""
    pending: _Pending | None = None
    due: bool = False
    """An exchange waits to be sent."""
    costs_ns: dict[int, dict[str, float]] = field(default_factory=dict)
    """By instance."""
    failures: dict[int, dict[str, int]] = field(default_factory=dict)
    given_up: dict[int, str] = field(default_factory=dict)
    """By instance: the one that it should use and does not ask any more; empty: there is none."""
    error: str = ""

    def cost_ns(self, name: str) -> float | None:
        """What a record costs in an alternative: in the instance where it costs most."""
        known = [costs[name] for costs in self.costs_ns.values() if name in costs]
        return max(known) if known else None

    @property
    def will_call(self) -> bool:
        """Whether the alternative that is wanted calls a function."""
        return self.of.alternative(self.wanted).calls is not None

    @property
    def may_call(self) -> bool:
        """Whether some instance may use an alternative that calls a function, now or soon."""
        return self.will_call or self.of.alternative(self.active).calls is not None

    def failed(self, name: str) -> int:
        """Blocks that an alternative has failed on, in all instances."""
        return sum(each.get(name, 0) for each in self.failures.values())


class Exchanges:
    """Carries exchanges of alternatives out.

    Parameters
    ----------
    numbers : iterator of int
        Numbers of exchanges, shared with those of switches of form: answers tell them apart.
    reports : list of ChangeReport
        Takes the exchanges that are done.
    """

    def __init__(
        self,
        plan: Plan,
        numbers: Iterator[int],
        reports: list[ChangeReport],
        wanted: Mapping[str, WantedAlternative] | None = None,
    ) -> None:
        self._numbers = numbers
        self._reports = reports
        self.operations: dict[str, Standing] = {}
        for unit in plan.units:
            for index, spec in enumerate(unit.ops):
                of = spec.operation.choice
                if of is not None:
                    made = Standing(spec.name, unit.id, index, of, unit.instances, of.active, of.active)
                    self.operations[spec.name] = made
                    before = (wanted or {}).get(spec.name)
                    if before is not None and before.alternative in of.names:
                        made.active = made.wanted = before.alternative
                        made.pin = before.pin if before.pin in of.names else None
                        made.number = next(numbers)

    def wanted(self) -> dict[str, WantedAlternative]:
        """What a commit record names."""
        return {name: WantedAlternative(each.wanted, each.pin) for name, each in self.operations.items()}

    def begin(
        self, name: str, alternative: str, reason: str, inputs: dict[str, float], at_s: float, now_us: int
    ) -> bool:
        """Have an operation use another alternative; say whether that is news."""
        standing = self.operations[name]
        if standing.wanted == alternative:
            return False
        standing.wanted, standing.number, standing.due = alternative, next(self._numbers), True
        record = ChangeReport(at_s=round(at_s, 3), operations=[name], to=alternative, reason=reason, inputs=inputs)
        standing.pending = _Pending(now_us, record, set(range(standing.instances)), standing.active)
        return True

    def tick(self, here: Callable[[int], bool]) -> list[m.Exchange]:
        """Return the exchanges to be sent to all workers now.

        One to call a function waits until its unit computes everything ``here``: slots cannot call.
        """
        due = [each for each in self.operations.values() if each.due and (not each.will_call or here(each.unit))]
        for each in due:
            each.due = False
        return [self._message(each) for each in due]

    def repeat(self) -> list[m.Exchange]:
        """The standing exchanges, for instances that were built anew."""
        return [self._message(each) for each in self.operations.values() if each.number]

    @staticmethod
    def _message(standing: Standing) -> m.Exchange:
        return m.Exchange(number=standing.number, unit=standing.unit, index=standing.index, alternative=standing.wanted)

    def on_changed(self, message: m.Changed, now_us: int) -> tuple[str, str, str] | None:
        """An instance uses what it was told to; when all do, the exchange is done: return operation, before, after."""
        for standing in self.operations.values():
            pending = standing.pending
            if pending is None or standing.number != message.number or standing.due:
                continue
            record = pending.record
            record.pause_ms = max(record.pause_ms, message.pause_us / 1000)
            record.warm_ms = max(record.warm_ms, message.warm_us / 1000)
            if message.instance in pending.waiting:
                record.carried_records += message.carried_records
                record.moved_records += message.moved_records
                record.case = record.case or message.case
            pending.waiting.discard(message.instance)
            if not pending.waiting:
                record.total_ms = (now_us - pending.since_us) / 1000
                self._reports.append(record)
                del self._reports[:-CHANGES_MAX]
                standing.active, standing.pending = standing.wanted, None
                return standing.name, pending.before, standing.active
        return None

    def on_pulse(self, pulse: m.Pulse) -> None:
        """Take costs and failures."""
        for unit in pulse.units:
            for each in unit.alternatives:
                for standing in self.operations.values():
                    if (standing.unit, standing.index) == (unit.unit, each.index):
                        standing.costs_ns[unit.instance] = each.costs_ns
                        standing.failures[unit.instance] = each.failures
                        standing.given_up[unit.instance] = each.given_up
                        standing.error = each.error or standing.error

    def view(self) -> dict[str, AlternativesView]:
        """For reports and the live view, by the name that users know."""
        return {
            name: AlternativesView(
                list(each.of.names),
                each.active,
                each.wanted,
                each.pin is not None,
                {other: cost / 1000 for other in each.of.names if (cost := each.cost_ns(other)) is not None},
            )
            for name, each in self.operations.items()
        }


def checked_alternative(plan: Plan, operation: str, alternative: str) -> None:
    """Refuse an operation that has no alternatives, or not this one."""
    known = Exchanges(plan, iter(()), []).operations
    if operation not in known:
        raise InvalidOption(
            option="operation",
            given=operation,
            allowed=", ".join(known) or "none: no operation of this job has alternatives",
            hint=nearest(operation, list(known)),
        )
    names = [*known[operation].of.names, AUTO]
    if alternative not in names:
        raise InvalidOption(
            option="alternative",
            given=alternative,
            allowed=", ".join(names),
            operation=operation,
            hint=nearest(alternative, names),
        )
