"""A worker as a pure machine: frames and the time in, frames and chores out. The shell moves the bytes.

==========  ======================================  ===============================================================
state       event                                   effect
==========  ======================================  ===============================================================
REGISTERED  Start                                   the shell reads snapshots back                        RESTORING
REGISTERED  a while has passed                      Present to the driver                                 REGISTERED
REGISTERED  Stop, or the driver is silent           —                                                     ENDED
RESTORING   a while has passed                      Present to the driver                                 RESTORING
RESTORING   `on_restored`                           instances are built; what came meanwhile is taken     AT WORK
AT WORK     Rollback                                the shell reads snapshots back                        RESTORING
AT WORK     a while has passed                      Pulse, Heartbeat                                      AT WORK
AT WORK     Commit (final)                          Stopped to the driver                                 LEAVING
AT WORK     an error                                Failed to the driver                                  LEAVING
LEAVING     all is confirmed, or nothing for long   —                                                     ENDED
any         Stop, or the driver is silent           —                                                     ENDED
==========  ======================================  ===============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.engine.chain import ClockNs
from penstock.engine.guard import Guard
from penstock.engine.share import Share, Snapshots
from penstock.engine.snapshot import Persist
from penstock.engine.ways.desk import Begin, Called, Cancel
from penstock.errors import OperationFailed, PenstockError, WorkerFailed
from penstock.operators.errors import describe_error, user_traceback
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol.link import Kind, Link, Outgoing, decode_header
from penstock.protocol.silence import Silence
from penstock.protocol.slots import decode_from_slot
from penstock.redaction import redacted

HEARTBEAT_US = 500_000
PULSE_US = 100_000
PULSES_PER_S = 1_000
"""What the driver hears of all workers together, about: in a large job each speaks less often."""
EARLY_MESSAGES_MAX = 10_000
"""Messages kept while instances are built; blocks beyond that are sent again by their channel."""
EARLY_BYTES_MAX = 64 << 20
LAST_WORD_US = 2_000_000
"""How long a worker that ends waits for the driver to confirm more of its last words."""

_FAILURES = (Exception, SystemExit)
"""A function that calls sys.exit has failed like one that raises; it must not look like a lost process."""

Usage = Callable[[], tuple[int, int, int]]
"""Memory in bytes, processor time and time at work in microseconds of this process."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Which process this is."""

    worker: int
    incarnation: int
    endpoint: str
    pid: int = 0
    order: int = 0
    """The driver's order that has brought it about."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the way to a peer, and give up the one to the process that it replaces, if there was one."""

    endpoint: str
    former: str | None


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read snapshots of instances that live here, and open the notes of careful mode; answer with `on_restored`."""

    snapshots: tuple[m.Stored, ...]
    careful: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read a snapshot beside the work; answer with `on_fetched`."""

    snapshot: m.Stored


Chore = Connect | ReadBack | Fetch | Persist | Begin | Cancel


class WorkerMachine:
    """One worker, from its registration to its end."""

    def __init__(
        self, plan: Plan, identity: WorkerIdentity, driver: str, clock_ns: ClockNs, usage: Usage, now_us: int
    ) -> None:
        self.identity = identity
        self.ended = False
        self.failure: BaseException | None = None
        """Why it cannot go on, if it cannot."""
        self.share: Share | None = None
        self.plan = plan.placed()
        self._driver = driver
        self._clock_ns = clock_ns
        self._usage = usage
        self._link, self._beside = Link(identity.incarnation), Link(identity.incarnation)
        self._endpoints: dict[int, str] = {}
        self._chores: list[Chore] = []
        self._restoring: m.Start | m.Rollback | None = None
        self._early: list[Sequence[bytes]] = []
        self._early_bytes = 0
        self._silence = Silence(plan.options.silence_us, now_us)
        self._beat_us = self._pulse_us = 0
        self._pulse_every_us = max(PULSE_US, plan.workers * 1_000_000 // PULSES_PER_S)
        self._present_us = now_us
        self._stirred = True
        """Whether anything has happened since the last pulse."""
        self._leaving_us: int | None = None
        self._post(
            m.Register(
                worker=identity.worker,
                incarnation=identity.incarnation,
                endpoint=identity.endpoint,
                pid=identity.pid,
                order=identity.order,
            )
        )

    # --- in -----------------------------------------------------------------------------------------------------------

    def receive(self, frames: Sequence[bytes], now_us: int) -> None:
        """Take a message: its kind, and what follows."""
        self._stirred = True
        try:
            self._take(frames, now_us)
        except _FAILURES as error:
            self.fail(error, now_us)

    def step(self, now_us: int) -> bool:
        """Do a bounded piece of what can be done now; say whether some of it may be left."""
        left = False
        try:
            if self.share is not None and self._restoring is None and self._leaving_us is None:
                left = self._work(self.share, now_us)
            elif self._leaving_us is None and now_us - self._present_us >= HEARTBEAT_US:
                self._present_us = now_us
                self._link.tell(self._present())
        except _FAILURES as error:
            self.fail(error, now_us)
        if self._silence.is_over(now_us):
            self.ended = True  # no process is left behind when the driver is gone
        if self._leaving_us is not None and (self._link.is_confirmed or now_us >= self._last_word_us):
            self.ended = True
        return left

    def fail(self, error: BaseException, now_us: int) -> None:
        """Something, here or in the shell, cannot be done: tell the driver, and end."""
        self.failure = error
        self._post(_failed(self.identity, error))
        self._leave(now_us)

    def _work(self, share: Share, now_us: int) -> bool:
        left = share.step(now_us)
        self._chores += share.to_store()
        if (wanted := share.moves.wants()) is not None:
            self._chores.append(Fetch(wanted))
        for message in share.to_driver():
            if isinstance(message, m.Stopped):
                self._beat(share, now_us)  # the last figures go before the last word
            self._post(message)
        self._stirred, share.worked = self._stirred or share.worked, False
        self._tell_figures(share, now_us)
        if share.stopping:
            self._leave(now_us)
        return left

    def _take(self, frames: Sequence[bytes], now_us: int) -> None:
        kind = frames[0]
        if kind == Kind.DRIVER:
            header = decode_header(frames[1])
            if header.link != self.identity.incarnation:
                return
            self._silence.hear(now_us)
            for packed in self._link.receive(header, frames[2] if len(frames) > 2 else None, now_us):
                self._on_driver(m.decode_to_worker(packed), now_us)
        elif self.share is None or self._restoring is not None:
            size_bytes = sum(map(len, frames))
            if len(self._early) < EARLY_MESSAGES_MAX and self._early_bytes + size_bytes <= EARLY_BYTES_MAX:
                self._early.append(frames)
                self._early_bytes += size_bytes
        elif kind == Kind.PEER:
            self.share.on_peer(frames[1:], now_us)
        elif kind == Kind.SLOT:
            self.share.on_slot(decode_from_slot(frames[1]), frames[2:])

    def _on_driver(self, message: m.ToWorker, now_us: int) -> None:
        if isinstance(message, m.Stop):
            self.ended = True
        elif self._restoring is not None and not isinstance(message, m.Alive):
            self._early.append([b"", m.encode(message)])
        elif isinstance(message, m.Start | m.Rollback):
            for peer in message.peers:
                former = self._endpoints.get(peer.worker)
                self._endpoints[peer.worker] = peer.endpoint
                if peer.worker != self.identity.worker and former != peer.endpoint:
                    self._chores.append(Connect(peer.endpoint, former))
            self._restoring = message
            self.plan.placement[:] = message.placement or self.plan.placement
            self.plan.routes[:] = message.routes
            stored, lenders = message.restore.snapshots if message.restore is not None else [], self._lenders(message)
            mine = [
                s
                for s in stored
                if self.plan.worker_of(s.instance) == self.identity.worker or (s.unit, s.instance) in lenders
            ]
            if self.share is not None and isinstance(message, m.Rollback):
                mine = self.share.moves.missing(mine, message.restore.epoch)
            self._chores.append(ReadBack(tuple(mine), isinstance(message, m.Start) and message.careful))
        elif self.share is not None:
            self.share.on_driver(message)

    def _lenders(self, message: m.Start | m.Rollback) -> set[tuple[int, int]]:
        """Instances elsewhere whose snapshots have key groups that belong here from the epoch on that is restored."""
        epoch = message.restore.epoch if message.restore is not None else 0
        fresh = [each for each in message.routes if each.epoch == epoch]
        return {(each.unit, each.old) for each in fresh if self.plan.worker_of(each.new) == self.identity.worker}

    def on_restored(self, snapshots: Snapshots, guard: Guard | None, now_us: int) -> None:
        """The shell has read snapshots back: build the instances, and take what came meanwhile."""
        try:
            self._restore(snapshots, guard, now_us)
        except _FAILURES as error:
            self.fail(error, now_us)

    def _restore(self, snapshots: Snapshots, guard: Guard | None, now_us: int) -> None:
        message, self._restoring = self._restoring, None
        if isinstance(message, m.Start):
            plan = replace(self.plan, start_us=message.start_us)
            self.share = Share(plan, self.identity.worker, self.identity.incarnation, self._clock_ns)
            self.share.start(message, snapshots, guard)
        elif message is not None and self.share is not None:
            self.share.roll_back(message, snapshots)
        early, self._early, self._early_bytes = self._early, [], 0
        for frames in early:
            if frames[0]:
                self._take(frames, now_us)
            else:
                self._on_driver(m.decode_to_worker(frames[1]), now_us)

    def on_stored(self, stored: m.Stored) -> None:
        """A snapshot is on disk."""
        if self.share is not None:
            self.share.on_stored(stored)

    def on_fetched(self, snapshot: m.Stored, data: bytes | None) -> None:
        """A snapshot was read beside the work; None: it could not be."""
        if self.share is not None:
            self.share.moves.on_fetched(snapshot, data)

    def on_called(self, done: Sequence[Called], now_us: int) -> None:
        """Calls of users' functions are over."""
        self._stirred = True
        try:
            if self.share is not None:
                self.share.desk.receive(done, now_us)
        except _FAILURES as error:
            self.fail(error, now_us)

    # --- out ----------------------------------------------------------------------------------------------------------

    def chores(self) -> list[Chore]:
        """Take what the shell shall do."""
        chores, self._chores = self._chores, []
        if self.share is not None:
            chores += self.share.desk.take()
        return chores

    def sends(self, now_us: int) -> Iterator[Outgoing]:
        """Yield what the shell shall send."""
        share = self.share
        if share is not None and self._restoring is None and self._leaving_us is None:
            endpoints = self._endpoints
            try:
                for peer, frames in share.to_peers(now_us):
                    if peer in endpoints:  # one that has not registered yet gets it when its channel sends it again
                        yield endpoints[peer], Kind.PEER, frames
                for endpoint, frames in share.to_slots(now_us):
                    yield endpoint, Kind.SLOT, frames
            except PenstockError as error:  # a record that is too large to travel
                self.fail(error, now_us)
        for frames in self._link.frames(now_us):
            yield self._driver, Kind.WORKER, frames

    def sends_beside(self, now_us: int) -> Iterator[Outgoing]:
        """Yield word that the worker is there, for another thread to send while `on_restored` builds for long.

        It touches nothing that the thread in `on_restored` does.
        """
        self._beside.tell(self._present())
        for frames in self._beside.frames(now_us):
            yield self._driver, Kind.WORKER, frames

    def _present(self) -> bytes:
        return m.encode(m.Present(worker=self.identity.worker, incarnation=self.identity.incarnation))

    def _post(self, message: m.FromWorker) -> None:
        self._link.post(m.encode(message))

    def _leave(self, now_us: int) -> None:
        if self._leaving_us is None:
            self._leaving_us = now_us

    @property
    def _last_word_us(self) -> int:
        """How long confirmations are waited for: from the last one on, for there may be much to confirm."""
        return max(self._leaving_us or 0, self._link.confirmed_us) + LAST_WORD_US

    # --- time and figures ---------------------------------------------------------------------------------------------

    def wake_us(self, now_us: int) -> int:
        """When there is something to do without a message."""
        if self._leaving_us is not None:
            wake_us = self._last_word_us
        elif self.share is None or self._restoring is not None:
            wake_us = now_us + HEARTBEAT_US
        else:
            # Where nothing happens there is nothing to tell, and no reason to wake up for it.
            wake_us = self._pulse_us + self._pulse_every_us if self._stirred else self._beat_us + HEARTBEAT_US
            own_us = self.share.wake_us(now_us)
            wake_us = wake_us if own_us is None else min(wake_us, own_us)
        again_us = self._link.wake_us()
        return wake_us if again_us is None else min(wake_us, again_us)

    def rests(self, wake_us: int, now_us: int) -> bool:
        """Whether messages may wait until ``wake_us``, which `wake_us` has said: what they bring then shares a turn.

        A turn costs more than what it does. Where sources have something all the time a worker takes as many turns as
        they need, however many others send to it. It listens at once where it waits for others: for results, for room,
        or because its sources are slow.
        """
        return wake_us - now_us <= 2 * self.plan.options.linger_us and self.share is not None and self.share.is_calm

    def _tell_figures(self, share: Share, now_us: int) -> None:
        # What waits may grow although nothing can be done: every heartbeat is a pulse too.
        if now_us - self._pulse_us >= (self._pulse_every_us if self._stirred else HEARTBEAT_US):
            self._pulse_us = now_us
            self._stirred = False
            _, cpu_us, busy_us = self._usage()
            self._link.tell(m.encode(share.pulse(now_us, busy_us, cpu_us)))
        if now_us - self._beat_us >= HEARTBEAT_US:
            self._beat(share, now_us)

    def tell_now(self, now_us: int) -> None:
        """Tell how busy it is and which slots it knows, though it is not time for that."""
        self._pulse_us, self._stirred = 0, True
        if self.share is not None:
            self._tell_figures(self.share, now_us)

    def _beat(self, share: Share, now_us: int) -> None:
        self._beat_us = now_us
        rss_bytes, cpu_us, _ = self._usage()
        self._link.tell(
            m.encode(
                m.Heartbeat(
                    worker=self.identity.worker,
                    incarnation=self.identity.incarnation,
                    at_us=now_us,
                    stats=share.figures(),
                    rss_bytes=rss_bytes,
                    cpu_us=cpu_us,
                    edges=share.edge_figures(),
                    offsets=share.offsets(),
                )
            )
        )

    def close(self) -> None:
        """Free sinks and sources."""
        if self.share is not None:
            self.share.close()


def last_words(worker: int, incarnation: int, driver: str, error: BaseException, now_us: int) -> Iterator[Outgoing]:
    """Yield what a process sends that cannot begin as a worker: why it cannot."""
    link = Link(incarnation)
    link.post(m.encode(_failed(WorkerIdentity(worker, incarnation, ""), error)))
    for frames in link.frames(now_us):
        yield driver, Kind.WORKER, frames


def _failed(identity: WorkerIdentity, error: BaseException) -> m.Failed:
    if isinstance(error, PenstockError):
        trace = redacted(error.user_traceback) if isinstance(error, OperationFailed) else ""
        # Whoever raised it, a user's function or a connector of another package, may have quoted an address.
        code, operation, what, hint = error.code, error.operation, redacted(error.what), redacted(error.hint)
    else:
        code, operation, hint, trace = WorkerFailed.code, None, "", ""
        what = f"a worker failed: {describe_error(error)}.\n{user_traceback(error)}"
    what, trace = what[: m.TEXT_MAX], trace[: m.TEXT_MAX]  # an error may show the record that it is about
    return m.Failed(
        worker=identity.worker,
        incarnation=identity.incarnation,
        code=code,
        operation=operation,
        what=what,
        hint=hint,
        user_traceback=trace,
    )
