"""A slot: one task of a Spark job that runs a group of micro-batches, as a pure machine. The shell moves the bytes.

A *replica* is this machine without a quota: it runs items in record form and lives as long as its job. What it says
unasked it says seldom, so that one that stands by costs no processor time; a worker that misses a result asks.

=========  ==================================  ================================================  =========
state      event                               effect                                            next
=========  ==================================  ================================================  =========
TAKING     Workers: a new one                  Ready to it                                       TAKING
TAKING     a while has passed (a replica's is  Ready to every worker, with what it holds         TAKING
           long while it has nothing)
TAKING     Ask (of a worker to a replica)      Ready to it, with what it holds                   TAKING
TAKING     Do                                  it waits in the queue                             TAKING
TAKING     a Do without records is through     its operations are built and tried; Done          TAKING
TAKING     a piece of a long one is done       looks up: messages, Ready; then goes on with it   TAKING
TAKING     a sample is there, no other work    a piece of it; Calibrated to the driver at its end TAKING
TAKING     a micro-batch is through            Done (or NotDone) to its owner                    TAKING
TAKING     the group's quota is done, or End   Leave to every worker                             LEAVING
LEAVING    Do (sent before the worker's Left)  it waits in the queue                             LEAVING
LEAVING    a while has passed                  Leave to those who have not answered, Ready (it   LEAVING
                                               has their work still) to those who have
LEAVING    Left from every worker, queue done  SlotDown to the driver, Leave (ended) to workers  ENDED
LEAVING    a worker silent for too long        as if it had answered: it gives the work anew     LEAVING
any        driver silent for too long          —                                                 ENDED
=========  ==================================  ================================================  =========
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from penstock.dataset import unpack
from penstock.engine.chain import ClockNs
from penstock.engine.lineage import Place
from penstock.engine.sections import Section
from penstock.engine.slices import Outcome, Slice
from penstock.engine.worker import Connect
from penstock.errors import LimitExceeded, OperationFailed, PenstockError, WorkerFailed
from penstock.operators.errors import describe_error, user_traceback
from penstock.pipeline.plan import Plan
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.link import Kind, Link, Outgoing, decode_header
from penstock.protocol.silence import Silence
from penstock.redaction import redacted

READY_US = 500_000
"""Between two times that a slot says that it is ready: a connection that breaks may have lost a word, or work."""
QUIET_US = 5_000_000
"""Likewise of a replica that has nothing to do."""
LEAVE_US = 1_000_000
"""How long a slot waits for a worker's Left."""
LEAVE_AGAIN_US = 200_000
SAMPLES_MAX = 8
"""Samples that may wait for a slot without other work; the oldest is given up then."""

_THROUGH = object()

SliceId = tuple[int, int, Range, bool, tuple[tuple[int, str], ...]]
"""Unit, instance, operations, whether in record form, and the alternatives among them."""
Slices = dict[SliceId, Slice | Section]
"""What a process has built."""


class State(Enum):
    """Where a slot is in its life."""

    TAKING = "taking"
    LEAVING = "leaving"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which task of which group this is."""

    group: int
    slot: int
    incarnation: int
    endpoint: str
    pid: int = 0


class SlotMachine:
    """Runs the micro-batches that workers send, until its group is done.

    Parameters
    ----------
    quota : int
        Micro-batches after which it ends; 0: it is a replica, and ends when it is told to.
    slices : dict
        Slices built before; a process that is used for one group after another keeps them.
    cpu_ns : callable
        Processor time of this thread; the clock itself where that is made up.
    """

    def __init__(
        self,
        plan: Plan,
        identity: Identity,
        quota: int,
        slices: Slices,
        clock_ns: ClockNs,
        driver: str = "",
        cpu_ns: ClockNs | None = None,
    ) -> None:
        self.identity = identity
        self.state = State.TAKING
        self._plan = plan
        self._quota = quota
        self._slices = slices
        self._clock_ns = clock_ns
        self._cpu_ns = cpu_ns or clock_ns
        self._workers: dict[int, int] = {}
        self._answered: set[int] = set()
        self._leaving_us = 0
        self._said_us = clock_ns() // 1000
        """When workers last heard how the slot is."""
        self._queue: deque[tuple[s.Do, bytes | None]] = deque()
        self._at_work: tuple[s.Do, Iterator[None]] | None = None
        """A micro-batch that is begun, and its pieces."""
        self._samples: deque[tuple[s.Do, bytes | None]] = deque(maxlen=SAMPLES_MAX)
        self._sampling: Iterator[None] | None = None
        """A sample that is begun: its pieces are done while nobody waits for anything else."""
        self._to_workers: list[tuple[int, list[bytes]]] = []
        self._batches = 0
        self._busy_ns = 0
        self._first_ns: int | None = None
        up = s.SlotUp(
            group=identity.group,
            slot=identity.slot,
            incarnation=identity.incarnation,
            endpoint=identity.endpoint,
            pid=identity.pid,
        )
        self._driver = driver
        self._link = Link(identity.incarnation)
        self._link.post(m.encode(up))
        self._endpoints: dict[int, str] = {}
        self._connects: list[Connect] = []
        self._silence = Silence(plan.options.silence_us, self._said_us)

    @property
    def waiting(self) -> int:
        """Micro-batches that wait here."""
        return len(self._queue)

    @property
    def ended(self) -> bool:
        """Whether its life is over."""
        return self.state is State.ENDED

    # --- messages in --------------------------------------------------------------------------------------------------

    def receive(self, frames: Sequence[bytes], now_us: int) -> None:
        """Take a message: its kind, and what follows."""
        payload = frames[2] if len(frames) > 2 else None
        if frames[0] != Kind.DRIVER.value:
            self.on_message(s.decode_to_slot(frames[1]), payload)
            return
        header = decode_header(frames[1])
        if header.link == self.identity.incarnation:  # else of the task before, in the same process
            self._silence.hear(now_us)
            for packed in self._link.receive(header, payload, now_us):
                self.on_message(s.decode_to_slot(packed), None)

    def connects(self) -> list[Connect]:
        """Take the ways that the shell shall open."""
        connects, self._connects = self._connects, []
        return connects

    def sends(self, now_us: int) -> Iterator[Outgoing]:
        """Yield what the shell shall send."""
        for worker, frames in self.to_workers():
            yield self._endpoints[worker], Kind.SLOT, frames
        for frames in self._link.frames(now_us):
            yield self._driver, Kind.SLOT, frames

    def on_workers(self, peers: list[m.Peer], start_us: int) -> None:
        """Take note of who the workers are; new ones hear that the slot is ready."""
        if self._plan.start_us != start_us:
            self._plan = replace(self._plan, start_us=start_us)
        for peer in peers:
            former = self._endpoints.get(peer.worker)
            if former != peer.endpoint:
                self._endpoints[peer.worker] = peer.endpoint
                self._connects.append(Connect(peer.endpoint, former))
            if self._workers.get(peer.worker) != peer.incarnation:
                self._workers[peer.worker] = peer.incarnation
                self._answered.discard(peer.worker)
                self._queue = deque(each for each in self._queue if each[0].worker != peer.worker)
                kept = [each for each in self._samples if each[0].worker != peer.worker]
                self._samples = deque(kept, maxlen=SAMPLES_MAX)
                if self.state is State.TAKING:
                    self._tell(peer.worker, self._ready(peer.worker))
                else:
                    self._answered.add(peer.worker)

    def _ready(self, worker: int) -> s.Ready:
        identity = self.identity
        return s.Ready(
            group=identity.group,
            slot=identity.slot,
            incarnation=identity.incarnation,
            endpoint=identity.endpoint,
            holds=self._holds(worker),
        )

    def _holds(self, worker: int) -> list[int]:
        """Micro-batches of a worker that are here: the one at work, and those that wait."""
        begun = [self._at_work[0]] if self._at_work is not None else []
        held = [*begun, *(do for do, _ in self._queue)]
        return [do.item for do in held if do.worker == worker]

    def on_message(self, message: s.ToSlot, payload: bytes | None) -> None:
        """Take work, or a word about the slot's end."""
        match message:
            case s.Workers(peers=peers, start_us=start_us):
                self.on_workers(peers, start_us)
            case s.Do(slot=slot, worker=worker, incarnation=incarnation):
                if slot == self.identity.incarnation and self._workers.get(worker) == incarnation:
                    (self._samples if message.sample else self._queue).append((message, payload))
            case s.Ask(slot=slot, worker=worker, incarnation=incarnation):
                if slot == self.identity.incarnation and self._workers.get(worker) == incarnation:
                    self._tell(worker, self._ready(worker))
            case s.Left(slot=slot, worker=worker, incarnation=incarnation):
                if slot == self.identity.incarnation and self._workers.get(worker) == incarnation:
                    self._answered.add(worker)
            case s.End(at_once=True):
                self._end()
            case s.End():
                self._leave()
            case _:
                pass

    # --- work ---------------------------------------------------------------------------------------------------------

    def step(self, now_us: int) -> bool:
        """Run one micro-batch, or a piece of a long one or of a sample, if there is one; say whether there was."""
        if self._silence.is_over(now_us):
            self.state = State.ENDED  # no process is left behind when the driver is gone
            return False
        self._say_again(now_us)
        if self._at_work is None and self._queue:
            do, payload = self._queue.popleft()
            self._at_work = do, self._run(do, payload)
        if self._at_work is not None:
            if next(self._at_work[1], _THROUGH) is _THROUGH:
                self._at_work = None
                if self._quota and self._batches >= self._quota:
                    self._leave()
            return True
        if self._sampling is None and self._samples:
            self._sampling = self._sample(*self._samples.popleft())
        if self._sampling is not None:
            if next(self._sampling, _THROUGH) is _THROUGH:
                self._sampling = None
            return True
        if self.state is State.LEAVING:
            everyone = self._answered >= set(self._workers)
            if everyone or now_us - self._leaving_us >= LEAVE_US:
                self._end()
        return False

    def wake_us(self) -> int:
        """When there is something to do without a message."""
        wake_us = min(self._said_us + self._pause_us, self._silence.ends_us)
        if self.state is State.LEAVING:
            wake_us = min(self._leaving_us + LEAVE_US, self._said_us + LEAVE_AGAIN_US)
        again_us = self._link.wake_us()
        wake_us = wake_us if again_us is None else min(wake_us, again_us)
        self._silence.awaits(wake_us)
        return wake_us

    @property
    def _pause_us(self) -> int:
        """Between two times that it says that it is ready."""
        return READY_US if self._quota or self._queue or self._at_work is not None else QUIET_US

    def _say_again(self, now_us: int) -> None:
        if self.state is State.TAKING and now_us - self._said_us >= self._pause_us:
            self._said_us = now_us
            for worker in self._workers:
                self._tell(worker, self._ready(worker))
        elif self.state is State.LEAVING and now_us - self._said_us >= LEAVE_AGAIN_US:
            self._said_us = now_us
            for worker in sorted(self._workers.keys() - self._answered):
                self._tell(worker, s.Leave(incarnation=self.identity.incarnation))
            for worker in sorted(self._answered & self._workers.keys()):
                if self._holds(worker):
                    self._tell(worker, self._ready(worker))

    def _leave(self) -> None:
        if self.state is State.TAKING:
            self.state = State.LEAVING
            self._leaving_us = self._said_us = self._clock_ns() // 1000
            for worker in self._workers:
                self._tell(worker, s.Leave(incarnation=self.identity.incarnation))

    def _end(self) -> None:
        self.state = State.ENDED
        for worker in self._workers:
            self._tell(worker, s.Leave(incarnation=self.identity.incarnation, ended=True))
        now_ns = self._clock_ns()
        worked_us = (now_ns - (self._first_ns if self._first_ns is not None else now_ns)) // 1000
        self._link.post(
            m.encode(
                s.SlotDown(
                    group=self.identity.group,
                    slot=self.identity.slot,
                    incarnation=self.identity.incarnation,
                    batches=self._batches,
                    busy_us=self._busy_ns // 1000,
                    worked_us=worked_us,
                )
            )
        )

    def _run(self, do: s.Do, payload: bytes | None) -> Iterator[None]:
        began_ns, began_cpu_ns = self._clock_ns(), self._cpu_ns()
        if self._first_ns is None and do.count:
            self._first_ns = began_ns
        origin = Place(do.partition, do.runs)
        try:
            work = self._slice(do)
            if not do.count:
                if do.runs and isinstance(work, Slice):
                    work.try_out(origin)
                now_us = self._clock_ns() // 1000
                self._answer(do, Outcome(do.due_us), now_us, now_us)
                return
            if isinstance(work, Section):
                assert payload is not None
                outcome = yield from work.run(work.open(payload), do.due_us, origin, do.skip)
                outcome.cpu_ns, done_ns = self._cpu_ns() - began_cpu_ns, self._clock_ns()
                self._batches, self._busy_ns = self._batches + 1, self._busy_ns + done_ns - began_ns
                self._answer(do, outcome, began_ns // 1000, done_ns // 1000)
                return
            columns, due_us = self._columns(work, do, payload)
            read_ns = self._clock_ns()
            outcome = yield from work.run(columns, due_us, origin)
            outcome.source_ns = read_ns - began_ns
        except Exception as error:
            self._tell(do.worker, _not_done(self.identity.incarnation, do, error))
            return
        done_ns = self._clock_ns()
        self._batches += 1
        self._busy_ns += done_ns - began_ns
        self._answer(do, outcome, began_ns // 1000, done_ns // 1000)

    def _sample(self, do: s.Do, payload: bytes | None) -> Iterator[None]:
        """Measure both forms of operations on some records, in pieces: micro-batches that come meanwhile go first."""
        try:
            work = self._slice(do)
            assert isinstance(work, Slice)
            columns, _ = self._columns(work, do, payload)
            found = yield from work.sample(columns, Place(do.partition, do.runs))
        except Exception:
            return  # a sample that cannot be run tells nothing; the record form will say what is wrong
        calibrated = s.Calibrated(
            unit=do.unit,
            instance=do.instance,
            records=do.count,
            record_ns=found.record_ns,
            batch_ns=found.batch_ns,
            records_in=found.records_in,
            using=do.using,
        )
        self._link.post(m.encode(calibrated))

    def _columns(self, work: Slice, do: s.Do, payload: bytes | None) -> tuple[pa.RecordBatch, int]:
        """The records of a micro-batch, and when the oldest one was due."""
        if payload is not None:
            return unpack(payload, self._plan.units[do.unit].schema_at(do.range.first)), do.due_us
        columns, due_us = work.read(Place(do.partition, do.runs))
        return columns, due_us or do.due_us

    def _slice(self, do: s.Do) -> Slice | Section:
        key = (do.unit, do.instance, do.range, do.rows, tuple(sorted(do.using.items())))
        found = self._slices.get(key)
        if found is None:
            unit = self._plan.units[do.unit]
            if do.rows:
                found = Section(self._plan, unit, do.range.first, do.range.last, self._clock_ns)
            else:
                found = Slice(self._plan, unit, do.instance, do.range.first, do.range.last, self._clock_ns, do.using)
            self._slices[key] = found
        return found

    def _answer(self, do: s.Do, outcome: Outcome, began_us: int, done_us: int) -> None:
        done = s.Done(
            incarnation=self.identity.incarnation,
            item=do.item,
            attempt=do.attempt,
            began_us=began_us,
            done_us=done_us,
            source_ns=outcome.source_ns,
            due_us=outcome.due_us,
            times=outcome.times,
            stages=outcome.stages,
            parts=outcome.parts,
            carried=[count for count, _ in outcome.carried],
            staged=[count for count, _ in outcome.staged],
            sides=[side for side, _ in outcome.sides],
            cpu_ns=outcome.cpu_ns,
        )
        behind = (*outcome.carried, *outcome.staged, *outcome.sides)
        payloads = [*outcome.payloads, *(packed for _, packed in behind)]
        try:
            for packed in payloads:
                m.check_size(packed, self._plan.units[do.unit].name_at(do.range.last))
        except LimitExceeded as error:
            self._tell(do.worker, _not_done(self.identity.incarnation, do, error))
            return
        frames = [m.encode(done), *payloads]
        self._to_workers.append((do.worker, frames))

    # --- messages out -------------------------------------------------------------------------------------------------

    def _tell(self, worker: int, message: s.FromSlot) -> None:
        self._to_workers.append((worker, [m.encode(message)]))

    def to_workers(self) -> list[tuple[int, list[bytes]]]:
        """Take the messages for workers."""
        taken, self._to_workers = self._to_workers, []
        return taken


def _not_done(incarnation: int, do: s.Do, error: Exception) -> s.NotDone:
    if isinstance(error, PenstockError):
        trace = redacted(error.user_traceback) if isinstance(error, OperationFailed) else ""
        return s.NotDone(
            incarnation=incarnation,
            item=do.item,
            attempt=do.attempt,
            code=error.code,
            operation=error.operation,
            what=redacted(error.what)[: m.TEXT_MAX],
            hint=redacted(error.hint),
            user_traceback=trace[: m.TEXT_MAX],
        )
    what = f"a slot failed: {describe_error(error)}.\n{user_traceback(error)}"[: m.TEXT_MAX]
    return s.NotDone(
        incarnation=incarnation,
        item=do.item,
        attempt=do.attempt,
        code=WorkerFailed.code,
        operation=None,
        what=what,
        hint="",
        user_traceback="",
    )
