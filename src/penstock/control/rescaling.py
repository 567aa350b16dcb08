"""How a running job gets more or fewer workers: columns move from one to another, one at a time; the scheduler asks.

A *column* is everything of one instance number: instance i of every unit, with its key groups and source partitions.
Columns are laid out at the start, as many as the parallelism says; how many workers share them may change. A column
moves behind an epoch marker, n, of which every step can be lost:

==========  =====================================  ===========================================  ==========
move        event                                  commands                                     next
==========  =====================================  ===========================================  ==========
none        a column is on the wrong worker        Prepare(commit m) to the new owner, Depart   PREPARING
                                                   to the old one
PREPARING   Prepared(m), m is not the last commit  Prepare(the last commit): what is missing,   PREPARING
                                                   a few times; Depart
PREPARING   Prepared, no epoch is under way        Hold(n), the next one, to the old owner      HOLDING
HOLDING     Holding(n)                             BeginEpoch(n) to all                         MARKED
MARKED      CommitRecorded(n)                      the placement changes; Commit(n) to all,     RELEASING
                                                   then Release to the old owner
RELEASING   Released, or the old owner is lost     Rollback(n) of the column alone to all       MOVING
MOVING      RolledBack from everyone               Resume to all; workers without a column      none
                                                   that are not wanted end
before      a worker is lost                       a recovery, in the placement that was;       none
RELEASING                                          whoever holds goes on
RELEASING   a worker is lost                       waits for Released: a recovery of the        MOVING
                                                   loss, the column and what is behind both
MOVING      a worker is lost                       likewise, at once                            MOVING
before      the new owner is lost, which had no    Hold(none) to the old owner                  none
RELEASING   column yet
==========  =====================================  ===========================================  ==========

Why nothing behind the column is rolled back: it has taken the marker and nothing after it, so it has sent nothing after
it; epoch n is committed, so everyone has read all that it had sent. What others have sent to it is in their logs, which
a Rollback makes them send again, to the new owner. Until then the others work. A snapshot does not say on which worker
its instance was, so neither does a commit: a job that is started again deals its columns out anew.

A worker that is to join is ordered from Spark like one that was lost, and gets a Start with nothing to run. One that
has been silent for long, and that Spark cannot bring back, leaves: its columns are recovered on the others. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec

from penstock.control.loads import Loads
from penstock.control.placing import host_of, next_move, spread, taken_over
from penstock.control.recovery import InstanceId
from penstock.control.shifting import Shifting
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

ROUNDS_MAX = 3
"""So often a new owner loads what was written while it loaded. Where epochs are shorter than that takes, it reads the
rest when it takes over."""
MOVES_MAX = 10_000
"""Moves that are remembered for reports."""


class MoveReport(msgspec.Struct):
    """One column that has moved, as reports show it.

    Attributes
    ----------
    pause_ms : float
        From the marker behind which it moved, in its old place, until it went on: no record of it waited for longer.
        What was queued before the marker was worked off until then.
    total_ms : float
        From the decision on; while its state was loaded ahead, it worked.
    """

    at_s: float
    column: int
    old: int
    new: int
    pause_ms: float
    total_ms: float
    loaded_bytes: int
    reason: str


class Step(Enum):
    """How far a move has come."""

    PREPARING = "loads its state"
    HOLDING = "waits for a marker"
    MARKED = "waits for the commit"
    RELEASING = "leaves"
    MOVING = "arrives"


@dataclass(slots=True)
class Move:
    """A column under way."""

    number: int
    column: int
    old: int
    new: int
    began_us: int
    step: Step = Step.PREPARING
    rounds: int = 0
    """How often it was told to load what was written meanwhile."""
    asked_epoch: int = 0
    prepared_epoch: int = -1
    epoch: int = 0
    """Behind whose marker it moves."""
    stopped_us: int = 0
    """When it stopped: as far as is known, when the marker was ordered, or when its old owner took it."""
    loaded_bytes: int = 0


Order = tuple[int, m.Prepare | m.Depart | m.Hold | m.BeginShift | m.Release]
"""To which worker, and what."""


class Rescaling:
    """The workers that a job is to have, and the columns on their way."""

    def __init__(self, plan: Plan, began_us: int = 0) -> None:
        self.wanted = set(range(plan.workers))
        self.joining: set[int] = set()
        """Workers that have come up, or are to, and host nothing yet."""
        self.up: set[int] = set()
        """Those of them that can be moved to."""
        self.move: Move | None = None
        self.reports: list[MoveReport] = []
        self.reason = ""
        self._plan = plan
        self.began_us = began_us
        """When the sources began to read in this run, which the times of reports count from."""
        self._number = 0
        self.loads = Loads(plan)
        self.shifting = Shifting(plan)
        """Key groups on their way; never while a column is."""
        self._hosts: dict[int, str] = {}
        """Machine of each worker."""

    # --- what is wanted -----------------------------------------------------------------------------------------------

    def want(self, workers: int, reason: str, members: Collection[int]) -> tuple[set[int], set[int]]:
        """Aim at so many workers; return those that are to join, and those that no longer are."""
        present = sorted(members)
        free = (each for each in range(self._plan.options.parallelism) if each not in members)
        self.wanted = set(present[:workers]) | {next(free) for _ in range(workers - len(present))}
        self.reason = reason
        given_up = self.joining - self.wanted
        self.joining -= given_up
        self.up -= given_up
        new = self.wanted - set(members) - self.joining
        self.joining |= new
        return new, given_up

    def on_up(self, worker: int) -> list[Order]:
        """A worker that is to join has come up, or has come up again and lost what it had loaded."""
        self.up.add(worker)
        return self.call_off(worker)

    def call_off(self, worker: int) -> list[Order]:
        """Give a move to a worker up that hosts nothing yet and is lost, or no longer wanted."""
        move = self.move
        if move is None or move.new != worker:
            return []
        self.move = None
        if move.step is Step.PREPARING:
            return []
        return [(move.old, m.Hold(move=move.number, epoch=0, column=-1))]

    def know(self, peer: m.Peer) -> None:
        """A worker is somewhere."""
        self._hosts[peer.worker] = host_of(peer.endpoint)

    def spread(self, peers: Collection[int]) -> None:
        """Lay the columns out over the machines, before anybody has one."""
        hosts = {worker: self._hosts[worker] for worker in peers}
        if self._plan.placement:
            self._plan.placement[:] = spread(hosts, self._plan.options.parallelism)

    # --- a move -------------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether no epoch may begin: somebody gets ready to hold behind it, or a column is between two workers."""
        return self.shifting.is_busy or (self.move is not None and self.move.step in (Step.HOLDING, Step.RELEASING))

    @property
    def is_moving(self) -> bool:
        """Whether a column or key groups are on their way, or about to be."""
        return self.move is not None or not self.shifting.is_idle

    @property
    def is_releasing(self) -> bool:
        """Whether a column belongs to its new owner, and its old one may still be at it."""
        return self.move is not None and self.move.step is Step.RELEASING

    def instances(self) -> set[InstanceId]:
        """What moves, if its placement has changed and not everyone has confirmed it."""
        if self.move is None or self.move.step not in (Step.RELEASING, Step.MOVING):
            return self.shifting.instances()
        return self.of_column(self.move.column)

    def of_column(self, column: int) -> set[InstanceId]:
        """The instances of a column."""
        return {(unit.id, column) for unit in self._plan.units if column < unit.instances}

    def choose(self, members: Collection[int]) -> tuple[int, int] | None:
        """Which column moves next, and where to; by load, unless the user only wants advice."""
        ready = self.wanted & (set(members) | self.up)
        loads = {} if self._plan.options.advise else self.loads.columns
        return next_move(self._plan.placement, self.wanted, ready, loads, self._hosts)

    def advance(
        self,
        members: Collection[int],
        committed: int,
        pending: bool,
        stored: Mapping[InstanceId, list[m.Stored]],
        now_us: int,
    ) -> list[Order]:
        """Take the next step, as far as it can be taken now.

        Parameters
        ----------
        committed : int
            The last epoch that was committed.
        pending : bool
            Whether the next one is under way.
        stored : mapping
            The snapshots of the last commit by instance.
        """
        if self.shifting.now is not None:
            return [*self.shifting.advance(committed, pending, stored)]
        if self.move is None:
            found = self.choose(members)
            if found is None:
                self._number += self.shifting.wanted is not None
                return [*self.shifting.begin(self._number, committed, stored, now_us)]
            self._number += 1
            column, new = found
            self.move = Move(self._number, column, self._plan.worker_of(column), new, now_us, asked_epoch=committed)
            return self._prepare(self.move, stored)
        move = self.move
        if move.step is not Step.PREPARING or move.prepared_epoch < move.asked_epoch:
            return []
        if move.prepared_epoch < committed and move.rounds < ROUNDS_MAX:
            move.asked_epoch, move.rounds = committed, move.rounds + 1
            return self._prepare(move, stored)
        if pending:
            return []
        move.step, move.epoch = Step.HOLDING, committed + 1
        return [(move.old, m.Hold(move=move.number, epoch=move.epoch, column=move.column))]

    def _prepare(self, move: Move, stored: Mapping[InstanceId, list[m.Stored]]) -> list[Order]:
        snapshots = [each for key in sorted(self.of_column(move.column)) for each in stored.get(key, ())]
        prepare = m.Prepare(move=move.number, epoch=move.asked_epoch, snapshots=snapshots)
        return [(move.new, prepare), (move.old, m.Depart(move=move.number, column=move.column))]

    def on_prepared(self, message: m.Prepared) -> None:
        """The new owner has loaded what it was told to."""
        self.shifting.on_prepared(message)
        move = self.move
        if move is not None and (move.number, move.new) == (message.move, message.worker):
            move.prepared_epoch = max(move.prepared_epoch, message.epoch)
            move.loaded_bytes = message.loaded_bytes

    def on_holding(self, message: m.Holding, now_us: int) -> bool:
        """The old owner will hold: say whether the marker can be sent now."""
        if self.shifting.now is not None:
            return self.shifting.on_holding(message, now_us)
        move = self.move
        if move is None or move.step is not Step.HOLDING or (move.number, move.epoch) != (message.move, message.epoch):
            return False
        move.step, move.stopped_us = Step.MARKED, now_us
        return True

    def on_committed(self, epoch: int) -> Move | None:
        """An epoch is committed: if a column waits behind it, it belongs to its new owner from now on."""
        move = self.move
        if move is None or move.step is not Step.MARKED or move.epoch != epoch:
            return None
        move.step = Step.RELEASING
        self._plan.placement[move.column] = move.new
        self.joining.discard(move.new)
        self.up.discard(move.new)
        return move

    def on_closed(self, message: m.Released, now_us: int) -> bool:
        """The old owner has closed its column, which it had held for a while: say whether that was waited for."""
        if not self.on_released(message.worker, message.move):
            return False
        assert self.move is not None
        if message.held_us:
            self.move.stopped_us = now_us - message.held_us
        return True

    def on_released(self, worker: int, number: int | None = None) -> bool:
        """The old owner has closed its column, or is lost: say whether that was waited for."""
        move = self.move
        if move is None or move.step is not Step.RELEASING or move.old != worker:
            return False
        if number is not None and number != move.number:
            return False
        move.step = Step.MOVING
        return True

    def on_recovery(self) -> None:
        """Everyone rolls back: what holds goes on, and a column whose placement has changed is among what is built."""
        self.shifting.on_recovery()
        if self.move is not None and self.move.step is not Step.MOVING:
            self.move = None

    def on_resumed(self, members: Collection[int], now_us: int) -> set[int]:
        """Everyone is where it should be: return the workers that can leave."""
        self.shifting.on_resumed(self.began_us, now_us)
        move = self.move
        if move is not None and move.step is Step.MOVING:
            self.move = None
            self.reports.append(
                MoveReport(
                    at_s=(now_us - self.began_us) / 1e6,
                    column=move.column,
                    old=move.old,
                    new=move.new,
                    pause_ms=(now_us - move.stopped_us) / 1000,
                    total_ms=(now_us - move.began_us) / 1000,
                    loaded_bytes=move.loaded_bytes,
                    reason=self.reason,
                )
            )
            del self.reports[:-MOVES_MAX]
        return set(members) - self.wanted - set(self._plan.placement)

    def lose(self, worker: int, members: Collection[int]) -> bool:
        """A worker does not come back: give its columns to the others; say whether there are any."""
        others = sorted(set(members) - {worker})
        if not others:
            return False
        taken_over(self._plan.placement, worker, others, self._hosts)
        self.wanted.discard(worker)
        self.wanted |= set() if self.wanted else set(others)
        self.move = None
        self.shifting.on_recovery()
        return True
