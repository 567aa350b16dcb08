"""A whole job in one process and in made-up time: the real scheduler and the real workers, joined by queues.

The user-facing harness drives it; nothing here knows of Spark, sockets or the wall clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import msgspec

from penstock.connectors.base import Sink
from penstock.control.events import DrainRequested, Event, Finish, FromWorker, Send, Tick
from penstock.control.scheduler import Phase, Scheduler
from penstock.engine.worker import Worker
from penstock.errors import PenstockError
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

START_US = 1_700_000_000_000_000
"""When made-up time begins: an ordinary day, so that times of day look like times of day."""
STEPS_MAX = 10_000_000


class Cluster:
    """Runs a plan step by step; time moves only when nothing can be done at the present moment."""

    def __init__(self, plan: Plan) -> None:
        self.now_us = START_US
        self.error: PenstockError | None = None
        self._plan = plan
        self._scheduler = Scheduler(plan.options, plan.workers, self.now_us)
        self._workers: dict[int, Worker] = {}
        self._frames: deque[tuple[int, list[bytes]]] = deque()
        self._sinks: dict[str, tuple[Sink, msgspec.msgpack.Decoder[list[object]], object]] = {}
        for unit in plan.units:
            for spec in unit.ops:
                if isinstance(spec.operation, Sink):
                    decoder = msgspec.msgpack.Decoder(list[spec.schema.record_type])  # type: ignore[name-defined]
                    self._sinks[spec.name] = spec.operation, decoder, spec.schema
        for worker in range(plan.workers):
            self._hear(FromWorker(m.Register(worker, worker + 1, f"memory:{worker}", 0)))

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self._scheduler.phase is Phase.ENDED

    @property
    def start_us(self) -> int:
        """When the sources' schedules began."""
        return self._scheduler.start_us

    @property
    def committed_epoch(self) -> int:
        """Last epoch committed everywhere."""
        return self._scheduler.committed_epoch

    @property
    def workers(self) -> list[Worker]:
        """The workers, for their figures."""
        return list(self._workers.values())

    def _hear(self, event: Event) -> None:
        for command in self._scheduler.handle(event, self.now_us):
            match command:
                case Send(worker=worker, message=message):
                    self._order(worker, message)
                case Finish(error=error):
                    self.error = error
                    for each in self._workers.values():
                        each.close()

    def _order(self, worker: int, message: m.ToWorker) -> None:
        # Through the codec, as on the wire.
        decoded = m.decode_to_worker(m.encode(message))
        if isinstance(decoded, m.Start):
            plan = replace(self._plan, start_us=decoded.start_us)
            self._workers[worker] = Worker(plan, worker, worker + 1, lambda: self.now_us * 1000)
        self._workers[worker].on_driver(decoded)

    def drain(self) -> None:
        """Ask the job to finish what it has."""
        self._hear(DrainRequested())

    def run_until(self, until_us: int) -> None:
        """Run until nothing is left to do before ``until_us``, or the job has ended."""
        for _ in range(STEPS_MAX):
            if self.ended:
                break
            if self._step():
                continue
            wake_us = self._wake_us()
            if wake_us > until_us:
                break
            self.now_us = max(self.now_us, wake_us)
            self._hear(Tick())
        else:
            raise AssertionError("the job makes no progress: it went through more steps than it can need")
        if not self.ended:
            self.now_us = max(self.now_us, until_us)
        if self.error is not None:
            raise self.error

    def _wake_us(self) -> int:
        wakes = [self._scheduler.wake_us(self.now_us)]
        wakes += [w for each in self._workers.values() if (w := each.wake_us(self.now_us)) is not None]
        return min(wakes)

    def _step(self) -> bool:
        worked = False
        while self._frames:
            to, frames = self._frames.popleft()
            payload = frames[1] if len(frames) > 1 else None
            self._workers[to].on_peer(m.decode_peer(frames[0]), payload, self.now_us)
            worked = True
        for worker in list(self._workers.values()):
            if worker.stopping:
                continue
            worked |= worker.step(self.now_us)
            for target, frames in worker.to_peers(self.now_us):
                self._frames.append((target, frames))
                worked = True
        for worker in list(self._workers.values()):
            for message in worker.to_driver():
                worked = True
                decoded = m.decode_from_worker(m.encode(message))
                if isinstance(decoded, m.Deliver):
                    sink, decoder, schema = self._sinks[decoded.sink]
                    sink.deliver(decoder.decode(decoded.rows), schema)  # type: ignore[arg-type]
                self._hear(FromWorker(decoded))
        return worked
