"""Which alternative of each operation is to be used, from order to effect. Pure; the control loop asks.

=========  ========================================  =============================================  =========
operation  event                                     effect                                         next
=========  ========================================  =============================================  =========
SETTLED    ordered: another alternative              Use to all; to one that calls a function when  EXCHANGING
                                                     the unit is in record form, which is seen to
EXCHANGING ordered: a third one, or back             Use to all, under a new number                 EXCHANGING
EXCHANGING Switched by every instance                the exchange is done, and measured             SETTLED
any        ordered: the one that was ordered last    nothing                                        same
any        a recovery is over                        Use to all again: rebuilt instances have the   same
                                                     alternative of their snapshot
any        a commit is recorded                      it names what was ordered last, and whether    same
                                                     the user has
=========  ========================================  =============================================  =========

A job that is started again begins with what its commit names, under a new number. An alternative that had not taken
over by then, because it was still warmed up, begins to be warmed up again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.control.events import Used
from penstock.control.switches import SWITCHES_MAX, SwitchReport
from penstock.errors import InvalidOption, nearest
from penstock.operators.alternatives import Alternatives
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

AUTO = "auto"


class AlternativesView(msgspec.Struct):
    """The alternatives of one operation, for reports and the live view."""

    names: list[str]
    active: str
    """The one that computes now; in a hand-over, still the one before."""
    wanted: str
    pinned: bool
    costs_us: dict[str, float] = msgspec.field(default_factory=dict)
    """What a record costs in each, as far as that is known."""
    out: dict[str, str] = msgspec.field(default_factory=dict)
    """Those that have failed and are not used for a while, with the error."""


@dataclass(slots=True)
class _Pending:
    ordered_us: int
    record: SwitchReport
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
    """Used by every instance."""
    wanted: str
    number: int = 0
    """Of the last order; 0: there was none, every instance has begun with it."""
    pin: str | None = None
    """What the user has settled."""
    pending: _Pending | None = None
    due: bool = False
    """An order waits to be sent."""
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


class Uses:
    """Carries exchanges of alternatives out.

    Parameters
    ----------
    numbers : iterator of int
        Numbers of orders, shared with those of switches of form: answers tell them apart.
    reports : list of SwitchReport
        Takes the exchanges that are done.
    """

    def __init__(
        self, plan: Plan, numbers: Iterator[int], reports: list[SwitchReport], used: Mapping[str, Used] | None = None
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
                    before = (used or {}).get(spec.name)
                    if before is not None and before.alternative in of.names:
                        made.active = made.wanted = before.alternative
                        made.pin = before.pin if before.pin in of.names else None
                        made.number = next(numbers)

    def used(self) -> dict[str, Used]:
        """What a commit record names."""
        return {name: Used(each.wanted, each.pin) for name, each in self.operations.items()}

    def order(
        self, name: str, alternative: str, reason: str, inputs: dict[str, float], at_s: float, now_us: int
    ) -> bool:
        """Have an operation use another alternative; say whether that is news."""
        standing = self.operations[name]
        if standing.wanted == alternative:
            return False
        standing.wanted, standing.number, standing.due = alternative, next(self._numbers), True
        record = SwitchReport(round(at_s, 3), [name], alternative, 0.0, 0.0, 0, reason, inputs)
        standing.pending = _Pending(now_us, record, set(range(standing.instances)), standing.active)
        return True

    def tick(self, here: Callable[[int], bool]) -> list[m.Use]:
        """Return the orders to be sent to all workers now.

        One to call a function waits until its unit computes everything ``here``: slots cannot call.
        """
        due = [each for each in self.operations.values() if each.due and (not each.will_call or here(each.unit))]
        for each in due:
            each.due = False
        return [self._message(each) for each in due]

    def repeat(self) -> list[m.Use]:
        """The standing orders, for instances that were built anew."""
        return [self._message(each) for each in self.operations.values() if each.number]

    @staticmethod
    def _message(standing: Standing) -> m.Use:
        return m.Use(use=standing.number, unit=standing.unit, index=standing.index, alternative=standing.wanted)

    def on_switched(self, message: m.Switched, now_us: int) -> tuple[str, str, str] | None:
        """An instance uses what it was told to; when all do, the exchange is done: return operation, before, after."""
        for standing in self.operations.values():
            pending = standing.pending
            if pending is None or standing.number != message.switch or standing.due:
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
                record.total_ms = (now_us - pending.ordered_us) / 1000
                self._reports.append(record)
                del self._reports[:-SWITCHES_MAX]
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
    known = Uses(plan, iter(()), []).operations
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
