"""Which process counts as a worker, when another one is ordered, and how many losses are too many; the scheduler asks.

Spark hosts the workers by *orders*, each a Spark job of its own. Order 0 is for all workers; a later one is for one
worker that has fallen silent. Spark starts a task again when its process is lost, so an order can bring several
processes one after the other, and a lost worker needs no order of ours.

=========  ======================================  =============================================  =========
worker     event                                   effect                                         next
=========  ======================================  =============================================  =========
ABSENT     Register                                it counts; Withdraw(n) if it is not of the     PRESENT
                                                   order n that was to bring it
ABSENT     it is to join, and no order is under    Replace(order n)                               ABSENT
           way, or nothing came of it
any        it is to leave                          Withdraw(n) if one is under way                ABSENT
PRESENT    a word of the process that counts       —                                              PRESENT
PRESENT    Register, of the same order             it counts, a loss: Spark started it again      PRESENT
PRESENT    Register, of another order              refused: the process that counts is there      PRESENT
PRESENT    silent too long                         Replace(order n)                               ORDERED
ORDERED    a word of the process that counts       Withdraw(n): it is back                        PRESENT
ORDERED    Register, of any order                  it counts, a loss; Withdraw(n) if it is        PRESENT
                                                   not of order n
ORDERED    Spark ends order n                      —                                              PRESENT
ORDERED    nothing came of it for very long        Withdraw(n), Replace(n + 1)                    ORDERED
=========  ======================================  =============================================  =========

Time in which the driver itself stood still, or its machine did, is no silence (`protocol/silence.py`).

So at any time at most one order is under way for a worker. The order of a process that has lost its place is withdrawn
too, unless it is order 0, which is for all of them. Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from penstock.control.events import Replace, Withdraw
from penstock.protocol.silence import stood_still_us

RENEW_SILENCES = 10
"""An order that nothing has come of for so many times the silence is withdrawn, and another one takes its place."""
ORDERS_FAILED_MAX = 5
"""Orders in a row for one worker that Spark may end before a process of theirs speaks."""
LOSSES_MAX = 20
"""Losses of one worker within `LOSSES_US` and without a commit: more mean that the job cannot get ahead."""
LOSSES_US = 600_000_000

PresenceCommand = Replace | Withdraw


class State(Enum):
    """Where a worker is, as far as the driver knows."""

    ABSENT = "absent"
    PRESENT = "present"
    ORDERED = "ordered"


@dataclass(slots=True)
class _Worker:
    state: State = State.ABSENT
    heard_us: int = 0
    order: int = 0
    """That the process which counts belongs to."""
    joins: bool = False
    """In ABSENT: the job has begun without it, and is to have it."""
    pending: int = 0
    """That is under way, in ORDERED, or until it joins."""
    ordered_us: int = 0
    failed_orders: int = 0
    losses_us: deque[int] = field(default_factory=lambda: deque(maxlen=LOSSES_MAX + 1))
    """When it was lost since the last commit."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A worker that is waited for."""

    worker: int
    silent_us: int
    ordered_us: int | None
    """How long ago another process was ordered, if one was."""


class Presence:
    """The workers of a job.

    Parameters
    ----------
    silence_us : int
        A worker that says nothing for longer is lost.
    patience_us : int, optional
        One that says nothing for longer is to leave; where that is sooner, a driver that stood still for a part of it
        counts that time as no silence.
    """

    def __init__(self, workers: int, silence_us: int, patience_us: int | None = None) -> None:
        self._workers = {worker: _Worker() for worker in range(workers)}
        self._silence_us = silence_us
        self._least_us = silence_us if patience_us is None else min(silence_us, patience_us)
        self._orders = 0
        self._ticked_us = 0
        """When the driver was last at work."""

    def on_register(self, worker: int, order: int, now_us: int) -> tuple[bool, list[PresenceCommand]]:
        """A new process of a worker has come: say whether it counts, and what follows."""
        each = self._workers[worker]
        if each.state is State.PRESENT and order != each.order:
            return False, []
        if each.state is not State.ABSENT:
            each.losses_us.append(now_us)
        gone = {each.order, each.pending} - {0, order}
        each.state, each.order, each.pending, each.failed_orders, each.joins = State.PRESENT, order, 0, 0, False
        each.heard_us = now_us
        return True, [Withdraw(worker, former) for former in sorted(gone)]

    def on_word(self, worker: int, now_us: int) -> list[PresenceCommand]:
        """The process that counts has said something."""
        each = self._workers[worker]
        each.heard_us = now_us
        if each.state is not State.ORDERED:
            return []
        return self._withdraw(worker, each)

    def on_order_ended(self, worker: int, order: int, now_us: int) -> bool:
        """Spark has ended an order; say whether that happens too often before a process of it speaks."""
        each = self._workers.get(worker, _Worker())
        if each.state is State.ORDERED and each.pending == order:
            each.state, each.pending, each.heard_us = State.PRESENT, 0, now_us
            each.failed_orders += 1
        elif each.joins and each.pending == order:
            each.pending = 0  # another one is ordered: a job does not fail because it cannot grow
        return each.failed_orders > ORDERS_FAILED_MAX

    def enlist(self, worker: int) -> None:
        """A worker is to join; the next tick orders it."""
        each = self._workers.setdefault(worker, _Worker())
        each.joins = each.state is State.ABSENT

    def retire(self, worker: int) -> list[PresenceCommand]:
        """A worker leaves, or is no longer to join."""
        each = self._workers.pop(worker, _Worker())
        return [Withdraw(worker, each.pending)] if each.pending else []

    def silent_us(self, worker: int, now_us: int) -> int:
        """How long a worker that has been there is not heard of."""
        each = self._workers.get(worker)
        return now_us - each.heard_us if each is not None and each.state is not State.ABSENT else 0

    def forgive(self) -> None:
        """The job has started, or has committed an epoch: it gets ahead in spite of its losses."""
        for each in self._workers.values():
            each.losses_us.clear()

    def tick(self, wanted: set[int], now_us: int) -> list[PresenceCommand]:
        """Order another process for each of these workers that is silent.

        While the driver stood still nobody could be heard and nothing could come of an order: that time does not count.
        """
        stood_us = stood_still_us(self._ticked_us or now_us, now_us, self._least_us)
        self._ticked_us = now_us
        for each in self._workers.values() if stood_us else ():
            each.heard_us = min(each.heard_us + stood_us, now_us)
            each.ordered_us = min(each.ordered_us + stood_us, now_us)
        commands: list[PresenceCommand] = []
        for worker, each in self._workers.items():
            if each.joins and (not each.pending or now_us - each.ordered_us > RENEW_SILENCES * self._silence_us):
                commands += [Withdraw(worker, each.pending)] if each.pending else []
                self._orders += 1
                each.pending, each.ordered_us = self._orders, now_us
                commands.append(Replace(worker, each.pending))
            if worker not in wanted:
                continue
            if each.state is State.ORDERED and now_us - each.ordered_us > RENEW_SILENCES * self._silence_us:
                commands += self._withdraw(worker, each)
            if each.state is State.PRESENT and now_us - each.heard_us > self._silence_us:
                self._orders += 1
                each.state, each.pending, each.ordered_us = State.ORDERED, self._orders, now_us
                commands.append(Replace(worker, each.pending))
        return commands

    @staticmethod
    def _withdraw(worker: int, each: _Worker) -> list[PresenceCommand]:
        order, each.state, each.pending = each.pending, State.PRESENT, 0
        return [Withdraw(worker, order)]

    def losses(self, worker: int) -> int:
        """How often a worker was lost since the last commit; from `LOSSES_MAX` + 1 on no longer exact."""
        return len(self._workers[worker].losses_us)

    def is_lost_too_often(self, worker: int) -> bool:
        """Whether a worker is lost at a rate at which the job cannot get ahead."""
        losses_us = self._workers[worker].losses_us
        return len(losses_us) > LOSSES_MAX and losses_us[-1] - losses_us[0] <= LOSSES_US

    def absences(self, wanted: set[int], quiet_us: int, now_us: int) -> list[Absence]:
        """Those of these workers that have said nothing for so long."""
        return [
            Absence(
                worker,
                now_us - each.heard_us,
                now_us - each.ordered_us if each.state is State.ORDERED else None,
            )
            for worker, each in self._workers.items()
            if worker in wanted and each.state is not State.ABSENT and now_us - each.heard_us > quiet_us
        ]
