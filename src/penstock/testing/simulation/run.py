"""One run: driver, workers, network and disk of a scenario, from the start to the end, with everything checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from penstock.control.events import AlternativePinned, ScaleRequested
from penstock.errors import PenstockError, SparkFailed
from penstock.protocol.link import Kind
from penstock.testing.simulation.alternatives import NAMES
from penstock.testing.simulation.disk import Disk
from penstock.testing.simulation.draws import Degree, Pin, Regroup, Wanted
from penstock.testing.simulation.driver import DriverProcess
from penstock.testing.simulation.faults import SLOT_ACTIONS, Action, Fault, Moment
from penstock.testing.simulation.hosting import Hosting
from penstock.testing.simulation.network import Network
from penstock.testing.simulation.poison import Notes
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.scenario import Scenario
from penstock.testing.simulation.seats import Seat
from penstock.testing.simulation.watchdog import describe
from penstock.testing.simulation.world import START_US, Violation, World
from penstock.types import Record

STEPS_MAX = 200_000
"""Enough for a micro-batch whose third slot is lost without a word: that is found out after 40 s."""
TIME_US_MAX = 400_000_000
DRIVER_RESTART_US_MAX = 2_000_000
SLOT_INCARNATIONS = 1_000_000
"""Slots are numbered from here on, workers from 1."""


@dataclass
class Outcome:
    """What a run has gone through."""

    scenario: Scenario
    trace: int
    """Hash of everything that happened; equal seeds have equal ones."""
    steps: int
    epochs: int
    recoveries: int
    injected: list[Fault]
    moments: Counter[Moment] = field(default_factory=Counter)
    """Faults by the step at which they struck."""
    refused: int = 0
    """Messages of replaced workers that were refused."""
    switches: int = 0
    """Units that have changed form, all instances of them."""
    slot_losses: int = 0
    """Slots that died at work."""
    refused_results: int = 0
    """Results of slots that had been given up, or came twice."""
    killed_by_record: int = 0
    careful: int = 0
    """Workers that came back in careful mode."""
    decisions: int = 0
    """Switches of which it was not the user who wanted them."""
    orders: int = 0
    """Processes that were ordered for workers that had fallen silent."""
    dismissed: int = 0
    """Processes that were told to stop because nobody needed them any more."""
    exchanges: int = 0
    """Times that another alternative has taken over, in all instances."""
    warm_ups: int = 0
    """Those before which it was warmed up."""
    moves: int = 0
    """Columns that have moved from one worker to another."""
    loaded: int = 0
    """Those of them, and of the shifts, whose state was loaded ahead."""
    activations: int = 0
    """Times that a replica became active."""
    grown: int = 0
    """Times that the job has given itself more workers because of its load, and fewer."""
    shrunk: int = 0
    shifts: int = 0
    """Times that key groups went from one instance to another."""


class Simulation:
    """The parts of a run, and the hand of fate."""

    def __init__(self, scenario: Scenario, *, keep_lines: bool = False) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed)
        if keep_lines:
            self.world.lines = []
        self.network = Network(self.world, scenario.weather)
        self.disk = Disk(self.world, scenario.write_us_max)
        self.plan, self._sinks = scenario.plan(self.disk, self.world)
        self.notes = Notes()
        self.processes: dict[str, Process] = {}
        self.seats: dict[str, Seat] = {}
        self.hosting = Hosting(self)
        self.exchanges = self.warm_ups = self.moves = self.loaded = self.activations = 0
        self.grown = self.shrunk = self.shifts = 0
        self.switches = self.decisions = self.slot_losses = self.killed_by_record = 0
        self.dismissed: set[int] = set()
        """Processes that have registered and never counted."""
        self._slot_incarnations = SLOT_INCARNATIONS
        self.driver = DriverProcess(self, 1)
        self.injected: list[Fault] = []
        self.recoveries = 0
        self.refused = 0
        self._lives = 1
        self._drained = False
        self._host_ended = False
        self._waiting = [fault for fault in scenario.faults if fault.moment is not None]
        self._reached: Counter[Moment] = Counter()
        for fault in scenario.faults:
            if fault.moment is None:
                self.world.after(fault.at_us, f"fault {fault.action.name}", partial(self._strike, fault, None))
        for wanted in scenario.exchanges or ():
            self.world.after(wanted.at_us, "exchange", partial(self._exchange, wanted))
        for scale in scenario.scales or ():
            self.world.after(scale.at_us, "scale", partial(self._scale, scale.workers))
        for regroup in scenario.regroups or ():
            self.world.after(regroup.at_us, "regroup", partial(self._regroup, regroup))
        for degree in scenario.degrees or ():
            self.world.after(degree.at_us, "degree", partial(self._want, degree))
        for pin in scenario.pins or ():
            self.world.after(pin.at_us, "pin", partial(self._pin, pin))
        self.hosting.start_all(self.driver, scenario.start_us_last)

    def _pin(self, pin: Pin) -> None:
        self.driver.pin(pin)

    def _scale(self, workers: int) -> None:
        self.driver.handle(ScaleRequested(workers))

    def _regroup(self, regroup: Regroup) -> None:
        self.driver.regroup(regroup)

    def _want(self, degree: Degree) -> None:
        self.driver.want(degree)

    def _exchange(self, wanted: Wanted) -> None:
        self.driver.handle(AlternativePinned(wanted.operation, wanted.alternative))

    # --- processes ----------------------------------------------------------------------------------------------------

    def send(self, source: Process | Seat | DriverProcess, target: str, kind: Kind, frames: Sequence[bytes]) -> None:
        """Send from one process to another."""
        whole = [kind.value, *frames]
        drivers = target == self.driver.name or isinstance(source, DriverProcess)
        target_driver = self.driver if target == self.driver.name else None

        def deliver() -> None:
            if drivers and source.mute:
                return
            found = target_driver or self.processes.get(target) or self.seats.get(target)
            if found is not None:
                found.take(whole)

        if target_driver is None and target not in self.processes and target not in self.seats:
            return  # a driver that is gone
        self.network.send(source.name, target, f"{source.name}>{target}", deliver, driver=drivers)

    def next_seat(self) -> int:
        """Return the number of a new process for slots."""
        return len(self.seats) + 1

    def next_incarnation(self) -> int:
        """Return a number that no slot has had."""
        self._slot_incarnations += 1
        return self._slot_incarnations

    # --- fate ---------------------------------------------------------------------------------------------------------

    def reach(self, moment: Moment, process: Process | Seat | None) -> None:
        """Somebody is at a step of the protocol: strike, if that was planned."""
        if not self._waiting:
            return
        self._reached[moment] += 1
        for fault in self._waiting:
            if fault.moment is moment and self._reached[moment] >= fault.nth and not self.driver.finished:
                self._waiting.remove(fault)
                self._strike(fault, process)
                return

    def _strike(self, fault: Fault, process: Process | Seat | None) -> None:
        live = [each for each in self.processes.values() if not each.dead and each.driver is self.driver]
        if self.driver.finished or self.driver.dead or not live:
            return
        if fault.action in SLOT_ACTIONS or (fault.action is Action.KILL_IT and isinstance(process, Seat)):
            self._strike_slots(fault, process, live)
            return
        it = process if isinstance(process, Process) else self.world.random.choice(live)
        others = [each for each in live if each.id != it.id] or [it]
        other = self.world.random.choice(others)
        self.world.note(f"{fault.action.name} {it.name} {fault.moment.name if fault.moment else ''}")
        self.injected.append(fault)
        until_us = self.world.now_us + fault.duration_us
        match fault.action:
            case Action.KILL_IT:
                self.kill(it)
            case Action.KILL_OTHER:
                self.kill(other)
            case Action.KILL_TWO:
                self.kill(it)
                if other is not it:
                    self.kill(other)
            case Action.FREEZE:
                it.freeze(until_us)
            case Action.ISOLATE:
                self.network.cut(it.name, self.driver.name, until_us)
            case Action.CUT:
                for each in live:
                    if each is not it:
                        self.network.cut(it.name, each.name, until_us)
            case Action.RETRY:
                self.hosting.again(it.id, self.driver, it.order)
            case Action.SHRINK:
                ids = sorted({each.id for each in live})
                taken = set(self.world.random.sample(ids, min(len(ids), fault.workers or self.world.between(1, 3))))
                self.hosting.shrink([each for each in live if each.id in taken], until_us)
            case Action.KILL_DRIVER:
                self._restart_driver()
            case Action.DRAIN:
                self._drained = True
                self.driver.drain()
            case Action.HOST_ENDS:
                self._host_ended = True
                for each in live:
                    each.kill(lose=self.world.chance(0.5))
                self.driver.on_host_ended("Job aborted")

    def _strike_slots(self, fault: Fault, process: Process | Seat | None, live: list[Process]) -> None:
        busy = [seat for seat in self.driver.spark.seats if seat.busy]
        if not busy:
            return
        random = self.world.random
        seat = process if isinstance(process, Seat) and process.busy else random.choice(busy)
        self.world.note(f"{fault.action.name} {seat.name} {fault.moment.name if fault.moment else ''}")
        self.injected.append(fault)
        until_us = self.world.now_us + fault.duration_us
        spark = self.driver.spark
        match fault.action:
            case Action.KILL_SLOT | Action.KILL_IT:
                spark.kill(seat)
            case Action.KILL_SLOTS:
                for each in busy:
                    spark.kill(each)
            case Action.KILL_BOTH:
                spark.kill(seat)
                self.kill(process if isinstance(process, Process) else random.choice(live))
            case Action.FREEZE_SLOT:
                seat.freeze(until_us)
            case Action.CUT_SLOT:
                for worker in live:
                    self.network.cut(seat.name, worker.name, until_us)
            case Action.RETRY_SLOT:
                spark.retry(seat)
            case _:
                spark.fail()

    def kill(self, process: Process) -> None:
        """Have a worker die; Spark starts it again."""
        process.kill(lose=self.world.chance(0.5))
        self.hosting.again(process.id, process.driver, process.order)

    def _restart_driver(self) -> None:
        self.driver.kill(lose=self.world.chance(0.5))
        self._count(self.driver)

        def start() -> None:
            self._lives += 1
            self.driver = DriverProcess(self, self._lives)
            self.hosting.start_all(self.driver, 0)

        self.world.after(self.world.between(1_000, DRIVER_RESTART_US_MAX), "the driver starts again", start)

    def _count(self, driver: DriverProcess) -> None:
        scheduler, switches = driver.machine.scheduler, driver.machine.loop.switches
        self.recoveries += scheduler.recoveries
        self.refused += scheduler.refused_messages
        self.moves += len(scheduler.rescaling.reports)
        self.shifts += len(scheduler.rescaling.shifting.reports)
        self.loaded += sum(each.loaded_bytes > 0 for each in scheduler.rescaling.reports)
        self.loaded += sum(each.loaded_bytes > 0 for each in scheduler.rescaling.shifting.reports)
        scaled = [each for each in driver.machine.staffing.decisions if each.inputs]
        self.grown += sum(each.workers > each.before for each in scaled)
        self.shrunk += sum(each.workers < each.before for each in scaled)
        self.switches += len(switches)
        self.activations += sum(each.activations for each in driver.machine.loop.replication.view())
        self.exchanges += sum(each.to in NAMES for each in switches)
        self.warm_ups += sum(each.warm_ms > 0 for each in switches)
        self.decisions += sum("queue" in each.reason or "backlog" in each.reason for each in switches)
        theirs = {each.alternative for each in self.scenario.exchanges or ()}.difference(NAMES)
        self.exchanges += sum(each.to in theirs for each in switches)

    # --- the run ------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run to the end; raise Violation if anything is not as it must be."""
        while self.driver.dead or not self.driver.finished:
            self._step()
            if self.driver.finished and self._drained and self.driver.error is None:
                # The job was to end early: it goes on as another one.
                self._drained = False
                self._restart_driver()
            elif self.driver.finished and self._host_ended and isinstance(self.driver.error, SparkFailed):
                self._host_ended = False
                self._restart_driver()
        self._check_end()
        self._count(self.driver)
        while any(not each.dead for each in self.processes.values()) or any(seat.busy for seat in self.seats.values()):
            self._step()  # those who were replaced wake up, find nobody, and end
        self._check_output()
        self.refused += sum(each.worker.refused_messages for each in self.processes.values() if each.worker)
        return Outcome(
            self.scenario,
            self.world.trace,
            self.world.steps,
            self.disk.committed_epoch,
            self.recoveries,
            self.injected,
            Counter(fault.moment for fault in self.injected if fault.moment),
            self.refused,
            self.switches,
            self.slot_losses,
            sum(each.worker.inspect().refused_results for each in self.processes.values() if each.worker),
            self.killed_by_record,
            self.notes.opened,
            self.decisions,
            self.hosting.orders,
            len(self.dismissed),
            self.exchanges,
            self.warm_ups,
            self.moves,
            self.loaded,
            self.activations,
            self.grown,
            self.shrunk,
            self.shifts,
        )

    def _step(self) -> None:
        world = self.world
        if world.steps > STEPS_MAX or world.now_us - START_US > TIME_US_MAX or not world.step():
            raise Violation(f"the job does not end:\n{describe(self)}")

    def _check_end(self) -> None:
        error, scenario = self.driver.error, self.scenario
        if scenario.poison and scenario.on_error == "fail":
            if error is None or error.operation != "poison":
                raise Violation(f"a record killed its process, and the job ends with {error}")
        elif error is not None:
            raise Violation(f"the job failed: {error}")
        elif not self.driver.sinks_finished:
            raise Violation("the job has ended well, and nobody has its sinks finish")
        if scenario.held_up:
            moved = [each for each in self.driver.machine.loop.switches if "labour" in each.operations]
            if moved:
                raise Violation(f"a unit that is held up by what is behind it changes form: {moved[0]}")

    def _check_output(self) -> None:
        if self.driver.error is not None:
            return
        if self.disk.committed_epoch < 1:
            raise Violation("no epoch was committed")
        output: dict[str, list[tuple[int, tuple[object, ...]]]] = {name: [] for name in self.plan.sinks}
        parts: list[tuple[str, int, int, list[Record]]] = []
        for name, sink in self._sinks.items():
            # Which instance it was is not told in the driver's process; a key's records still have their order.
            output[name] = [(0, _values(record)) for record in sink.rows]
        shifts = self.scenario.regroups is not None or self.shifts > 0  # drawn, or by the law
        for (name, instance, epoch), rows in self.disk.published.items():
            # Where key groups go from one instance to another, a key has one of them in each epoch.
            parts.append((name, epoch if shifts else instance, instance if shifts else epoch, rows))
        for name, first, _, rows in sorted(parts, key=lambda part: part[:3]):
            output[name] += [(0 if shifts else first, _values(record)) for record in rows]
        self.scenario.check(output)


def _values(record: object) -> tuple[object, ...]:
    return tuple(getattr(record, name) for name in record.__struct_fields__)  # type: ignore[attr-defined]


def simulate(seed: int) -> Outcome:
    """Run the scenario of a seed.

    Raises
    ------
    Violation
        If anything was lost, doubled, reordered or made up, a rule was broken, or the run did not end; the
        message says how to see it again.
    """
    simulation: Simulation | None = None
    try:
        simulation = Simulation(Scenario.of(seed))
        return simulation.run()
    except (PenstockError, AssertionError, LookupError, AttributeError, TypeError, ValueError) as error:
        what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        raise Violation(f"{what}\nagain: make simulate SEED={seed}") from error
