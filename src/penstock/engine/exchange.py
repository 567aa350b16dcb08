"""Exchanges of alternatives in one unit instance: from one place in the line on, another one computes.

Which alternative computes a block is settled where the block comes to the operation. Records before a micro-batch's
range are computed when they enter, those behind it when they leave, and a micro-batch says itself which alternative it
is for. So an exchange waits for nothing: what is under way goes on as it began, what comes next begins as it is wanted,
and the line lets both out in order.

=========  =================================================  ======================================================
operation  event                                              effect
=========  =================================================  ======================================================
STEADY     Exchange, no state                                 what comes next is for the new one; micro-batches that
                                                              no slot has go to it too
STEADY     Exchange, it calls a function, slots compute       waits until the operation is in record form
STEADY     Exchange, state that can be given                  it is given, at this place
STEADY     Exchange, state that has to be built               WARMING; see `operators/keyed/exchange.py`
WARMING    a turn                                             the new one does some of what it is behind by
WARMING    it is warm                                         it does the rest, takes over: STEADY
any        Exchange of another number                         replaces the order before
any        Exchange that was heard before (a recovery)         nothing to do: answered again
any        the end                                            answered: whoever has ended computes nothing
any        the instance is built anew                         the one of its snapshot; the driver repeats its order
=========  =================================================  ======================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.engine.chain import ClockNs
from penstock.engine.stage import Stage
from penstock.operators.alternatives import AlternativesOperator
from penstock.operators.keyed.exchange import Case, KeyedOperator
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol.pulses import AlternativePulse

if TYPE_CHECKING:
    from penstock.engine.unit import Unit

CATCH_UP_ENTRIES = 2
"""Blocks and watermarks that a warming alternative is given in one turn: as many as one adds,"""
CATCH_UP_IDLE = 16
"""and where nothing waits."""
FIRST_ITEM_RECORDS = 16
"""Records of the first micro-batch of an alternative whose cost is not known."""
TRIAL_US = 1_000_000
"""How often, at the most, another alternative is tried on copies."""


class UnitExchanges:
    """The alternatives of one unit instance."""

    def __init__(self, unit: Unit, clock_ns: ClockNs) -> None:
        self._unit = unit
        self._clock_ns = clock_ns
        self._stages: dict[int, tuple[Stage, AlternativesOperator | KeyedOperator]] = {
            index: (stage, stage.operator)
            for index, stage in enumerate(unit.chain.stages)
            if isinstance(stage.operator, AlternativesOperator | KeyedOperator)
        }
        self.wanted: dict[int, m.Exchange] = {}
        """By operation: what was ordered and is not done."""
        self._warming_us: dict[int, tuple[int, int]] = {}
        """By operation: number of the order, and since when its alternative is warmed up."""
        self._costs_ns: dict[tuple[int, str], float] = {}
        self._seen: dict[int, tuple[str, int, int]] = {}
        """By operation: who was active at the last look, records in and busy time then."""
        self._tried_us = 0

    # --- orders -------------------------------------------------------------------------------------------------------

    def want(self, exchange: m.Exchange) -> None:
        """Take an order; it is carried out between two portions."""
        self._unit.bell.rung = True
        self.wanted[exchange.index] = exchange
        if self._unit.finished:
            self.end()

    def step(self, now_us: int) -> bool:
        """Carry out what can be now; say whether an alternative whose cost may be another one has taken over."""
        changed = False
        for exchange in list(self.wanted.values()):
            changed |= self._carry_out(exchange, now_us)
        return changed

    def _carry_out(self, exchange: m.Exchange, now_us: int) -> bool:
        unit, (stage, operator) = self._unit, self._stages[exchange.index]
        way = unit.way
        if exchange.index in way.range and not way.can_call and _calls(operator, exchange.alternative):
            return False  # it waits for the record form, which the driver orders too
        left_us, before, case, moved, warm_us = self._clock_ns() // 1000, operator.active, Case.EQUAL, 0, 0
        if isinstance(operator, KeyedOperator):
            number, since_us = self._warming_us.get(exchange.index, (0, now_us))
            known = exchange.alternative in (operator.active, operator.target)
            if number != exchange.number or not (known or operator.given_up):
                if operator.target != exchange.alternative or operator.active == exchange.alternative:
                    operator.use(exchange.alternative)
                    since_us = now_us
                self._warming_us[exchange.index] = exchange.number, since_us
            if operator.target is not None:
                warm_us = now_us - since_us
                if not operator.is_warm(warm_us):
                    operator.catch_up(CATCH_UP_ENTRIES if unit.input.waiting_records(now_us) else CATCH_UP_IDLE)
                    return False
                case = operator.hand_over()
        else:
            operator.use(exchange.alternative)
            stage.process = operator.process
            if operator.active != before and exchange.index in way.range:
                case = Case.AHEAD if unit.line else Case.EQUAL
                moved = way.hand_on(FIRST_ITEM_RECORDS)
        del self.wanted[exchange.index]
        self._warming_us.pop(exchange.index, None)
        waiting = unit.input.waiting_records(now_us)
        unit.changes.made(exchange.number, left_us, waiting, case=case.value, moved_records=moved, warm_us=warm_us)
        return operator.active != before

    def end(self) -> None:
        """Whoever has ended computes nothing, in the old way or the new: every order is carried out."""
        for exchange in self.wanted.values():
            self._unit.changes.made(exchange.number, 0, 0)
        self.wanted.clear()
        self._unit.changes.end()

    # --- what is active -----------------------------------------------------------------------------------------------

    def using(self, operations: Range) -> dict[int, str]:
        """The active alternatives of a range of operations, by index."""
        return {index: each.active for index, (_, each) in self._stages.items() if index in operations}

    def calls_in(self, operations: Range) -> bool:
        """Whether an active alternative of a range calls a function, which slots cannot."""
        return any(_calls(each, each.active) for index, (_, each) in self._stages.items() if index in operations)

    @contextmanager
    def as_in(self, using: Mapping[int, str]) -> Iterator[None]:
        """For a while, compute as an item was to be computed that is given back."""
        now = {index: self._stages[index][1].active for index in using}
        self._take(using)
        try:
            yield
        finally:
            self._take(now)

    def _take(self, using: Mapping[int, str]) -> None:
        for index, name in using.items():
            stage, operator = self._stages[index]
            operator.use(name)
            stage.process = operator.process

    def states(self) -> dict[str, str]:
        """The active alternatives by operation, for a snapshot."""
        return {stage.stats.name: operator.active for stage, operator in self._stages.values()}

    def restore(self, states: Mapping[str, str]) -> None:
        """Go on with the alternatives of a snapshot; those with state know theirs."""
        for index, (stage, operator) in self._stages.items():
            name = states.get(stage.stats.name)
            if isinstance(operator, AlternativesOperator) and name in operator.of.names:
                self._take({index: name})

    # --- figures ------------------------------------------------------------------------------------------------------

    def pulse(self, now_us: int) -> list[AlternativePulse]:
        """What is active, what each alternative costs as far as that is known, and how often each has failed."""
        found = []
        for index, (stage, operator) in self._stages.items():
            self._look(index, stage, operator.active)
            if isinstance(operator, AlternativesOperator):
                self._try(index, operator, now_us)
            found.append(
                AlternativePulse(
                    index=index,
                    active=operator.active,
                    costs_ns={name: cost for (at, name), cost in self._costs_ns.items() if at == index},
                    failures=dict(operator.failures),
                    error=operator.last_error,
                    given_up=operator.given_up,
                )
            )
        return found

    def _look(self, index: int, stage: Stage, active: str) -> None:
        """Take what the active one has cost since the last look, if it was active all the time."""
        stats = stage.stats
        name, records, busy_ns = self._seen.get(index, (active, stats.records_in, stats.busy_ns))
        self._seen[index] = active, stats.records_in, stats.busy_ns
        way = self._unit.way
        if index in way.range and way.calls(active):
            if (cost_ns := way.take_cost_ns(active)) is not None:
                self._costs_ns[index, active] = cost_ns
            return
        if name == active and stats.records_in > records:
            self._costs_ns[index, active] = (stats.busy_ns - busy_ns) / (stats.records_in - records)

    def _try(self, index: int, operator: AlternativesOperator, now_us: int) -> None:
        """Try alternatives that the job may choose and whose cost is not known, while nothing waits."""
        if now_us - self._tried_us < TRIAL_US or self._unit.input.waiting_records(now_us) or self._unit.finished:
            return
        for name in operator.of.prefer if operator.of.latency_us is not None else ():
            if (index, name) not in self._costs_ns and name != operator.active:
                self._tried_us = now_us
                cost_ns = operator.try_out(name, self._clock_ns)
                if cost_ns is not None:
                    self._costs_ns[index, name] = cost_ns
                    return


def _calls(operator: AlternativesOperator | KeyedOperator, name: str) -> bool:
    return operator.of.alternative(name).calls is not None
