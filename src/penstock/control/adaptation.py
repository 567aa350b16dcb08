"""The control loop of a job: monitor, analyse, plan, execute. The driver feeds it and carries its commands out. Pure.

`measures` monitors, `forms` analyses and plans, `switches` and `groups` execute; here they meet. Everything that
pins a form goes through one door: an operation is pinned to record form, pinned to batch form, or free.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from penstock.control.changes import Advice, ChangeReport
from penstock.control.choices import Chooser, WantedExchange
from penstock.control.elastic import Elastic, ElasticReport
from penstock.control.events import Send, WantedAlternative
from penstock.control.exchanges import AlternativesView, Exchanges
from penstock.control.forms import Switcher, UnitMeasure, WantedSwitch
from penstock.control.groups import GroupCommand, GroupFigures, Groups
from penstock.control.laws.group_size import IntervalBounds, interval_us
from penstock.control.measures import Measures
from penstock.control.monitor import OperationFigures
from penstock.control.pins import first_pins
from penstock.control.replicas import ReplicasView, Replication
from penstock.control.staffing import StaffingView
from penstock.control.switches import FormView, SwitchEnded, Switches
from penstock.errors import WorkerFailed
from penstock.operators import Form
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol import slots as s

CONTROL_US = 100_000
CALIBRATE_US_MIN = 1_000_000
"""Between two tries to get a sample; twice as long after each, since some operations are hardly ever reached."""
CALIBRATE_US_MAX = 60_000_000
SLOTLESS_US = 5_000_000
"""A worker without slots waits so long for others before ranges in batch form are called back."""
SAMPLES = 3
"""Samples taken of each instance; one may be disturbed."""
SAMPLE_RECORDS = 4_096
ALIVE_US = 1_000_000
BATCH_OVERHEAD_US = 2_000
"""What a micro-batch costs however small it is: two messages, and the calls of its operations."""
ADVICE_MAX = 1_000

Command = Send | GroupCommand


@dataclass(frozen=True, slots=True)
class JobView:
    """What the loop has to know of the scheduler."""

    running: bool
    """Workers do their work: they have started, and none is being recovered."""
    ending: bool
    peers: list[m.Peer]
    start_us: int
    began_us: int
    """When the sources began to read in this run, which the times of reports count from."""


class Action(msgspec.Struct):
    """What a user has wanted of a running job."""

    at_us: int
    by: str
    """Who: a user and process of this machine, or the program itself that has started the job."""
    what: str


class Adaptation(msgspec.Struct):
    """What the loop has done, for reports."""

    switches: list[ChangeReport]
    advice: list[Advice]
    notes: list[str]
    groups: list[GroupFigures]
    group_size: int
    overhead: float | None
    record_ns: dict[str, float]
    batch_ns: dict[str, float]
    given_up: str | None = None
    """Why the batch form was given up for the rest of the job, if it was."""
    alternatives: dict[str, AlternativesView] = {}
    """By operation that has some."""
    actions: list[Action] = []
    replicas: list[ReplicasView] = []
    """By range that may have some."""
    elastic: ElasticReport | None = None
    """Replicas over the run, if the job has some."""
    workers: StaffingView | None = None
    """How many workers there are to be, and why; what the job has decided by itself."""


class ControlLoop:
    """Decides which operations change form, and has them do so."""

    def __init__(self, plan: Plan, cores: int, alternatives: Mapping[str, WantedAlternative] | None = None) -> None:
        options = plan.options
        self._plan = plan
        self._options = options
        self._pins = first_pins(plan)
        self._calling: dict[str, Form] = {}
        """Operations that are in record form whatever is pinned, because their alternative calls a function."""
        self._measures = Measures(plan, cores, ChainMap(self._calling, self._pins))
        self._switcher = Switcher()
        self._chooser = Chooser(cores)
        numbers = count(1)
        self._switches = Switches(plan, numbers)
        self._exchanges = Exchanges(plan, numbers, self._switches.reports, alternatives)
        self.replication = Replication(plan, self._switches)
        self._elastic = Elastic(plan, cores, self._switches, self.replication)
        self._groups = Groups(options.slots or plan.workers, options.group_size or None, options.calm_us)
        self._advice: list[Advice] = []
        self._notes: list[str] = []
        self._control_us = 0
        self._calibrations: dict[int, tuple[int, int]] = {}
        """By unit: when the next sample is asked for, and how long after it the one after that."""
        self._slotless_us: int | None = None
        self._unserved_us: int | None = None
        """Since when operations are to be in batch form, and no slot is up."""
        self._without = False
        """Whether batch form is given up."""
        self._alive_us = 0
        self.places: int | None = None
        """Tasks that Spark can run side by side, once that is known."""
        self._peers: list[m.Peer] = []
        self._began_us = 0

    @property
    def slot_pids(self) -> list[int]:
        """Processes of the slots."""
        return list(self._groups.pids.values())

    @property
    def switches(self) -> list[ChangeReport]:
        """Switches that are done."""
        return self._switches.reports

    @property
    def is_switching(self) -> bool:
        """Whether some range changes form or replicas."""
        return self._switches.is_busy

    @property
    def is_in_batch(self) -> bool:
        """Whether some range is in batch form, or on its way there."""
        return self._switches.is_away

    def advise(self, report: Advice) -> None:
        """Take what somebody else would do, had the user not wanted advice alone."""
        self._advice.append(report)
        del self._advice[:-ADVICE_MAX]

    def inspect(self) -> dict[int, FormView]:
        """The form that each unit is to have; a read-only view."""
        return self._switches.inspect()

    def report(self) -> Adaptation:
        """What was done so far."""
        return Adaptation(
            list(self._switches.reports),
            list(self._advice),
            [*self._switcher.notes, *self._elastic.notes, *self._notes],
            list(self._groups.finished),
            self._groups.size,
            self._groups.overhead,
            self._measures.calibrated(Form.RECORD),
            self._measures.calibrated(Form.BATCH),
            self._groups.given_up,
            self.alternatives(),
            replicas=self.replication.view(),
            elastic=self._elastic.report(),
        )

    def waits(self, now_us: int) -> list[str]:
        """What is waited for, in words: slots, where operations are to be in batch form and none is up for a while."""
        replicas = self.replication.waits()
        if self._unserved_us is None or now_us - self._unserved_us < SLOTLESS_US:
            return replicas
        why = self._groups.error or "the cluster has no free core for them"
        return [*replicas, f"slots for the batch form, until then records are handled one by one: {why}"]

    # --- events -------------------------------------------------------------------------------------------------------

    def on_worker(self, message: m.FromWorker, now_us: int) -> None:
        """Take a worker's word."""
        self._elastic.on_worker(message)
        match message:
            case m.Pulse():
                self._measures.on_pulse(message)
                self.replication.on_pulse(message)
                self._exchanges.on_pulse(message)
            case m.Changed():
                self._note_ended(self._switches.on_changed(message, now_us), now_us)
                if (done := self._exchanges.on_changed(message, now_us)) is not None:
                    self._measures.exchanged(*done)
            case m.Register(worker=worker):
                self._measures.forget_worker(worker)
                self.replication.forget_worker(worker)
            case _:
                pass

    def on_slot(self, message: s.ToDriver, now_us: int) -> list[Command]:
        """Take a slot's word."""
        match message:
            case s.SlotUp(group=group) if group < 0:
                return list(self.replication.on_up(message))
            case s.SlotDown(group=group) if group < 0:
                self.replication.on_down(message)
            case s.SlotUp():
                return list(self._groups.on_up(message, now_us))
            case s.SlotDown():
                self._groups.on_down(message)
            case s.Calibrated():
                self._measures.on_calibrated(message)
        return []

    def on_group_ended(self, group: int, error: str | None, now_us: int) -> list[Command]:
        """Spark says that a group's job has ended."""
        ended: list[GroupCommand] = []
        if group < 0:
            self.replication.on_ended(group, error, now_us)
        else:
            ended = self._groups.on_ended(group, error, now_us)
        return [*ended, *(Send(peer.worker, m.GroupEnded(group=group)) for peer in self._peers)]

    def on_replaced(self, now_us: int, cores: int | None = None) -> list[Command]:
        """A worker that does not answer is replaced by a new task, which needs a place in the cluster."""
        commands: list[Command] = list(self._groups.give_way(now_us))
        if cores is not None and cores <= self._plan.workers + self.replication.size:
            commands += self.replication.give_way(now_us)
        return commands

    def on_resumed(self, peers: Sequence[m.Peer]) -> list[Command]:
        """The workers begin, or a recovery or a move is over: rebuilt instances are told what the others know."""
        self._peers = list(peers)  # the first time, no look was taken yet
        orders: list[m.ToWorker] = [*self._switches.repeat(), *self._exchanges.repeat()]
        return [Send(peer.worker, order) for order in orders for peer in self._peers]

    def pin(self, operations: Sequence[str], form: Form | None) -> None:
        """Pin the form of operations, or leave it to the loop again (None)."""
        for name in operations:
            if form is None:
                self._pins.pop(name, None)
            else:
                self._pins[name] = form
        self._control_us = 0  # the next look is now

    def pin_alternative(self, operation: str, alternative: str | None, by: str, now_us: int) -> None:
        """Have an operation use an alternative for good, or leave it to the loop again (None)."""
        standing = self._exchanges.operations[operation]
        standing.pin = alternative
        if alternative is not None:
            reason = f"wanted by {by}" if by else "wanted by the user"
            self._exchanges.begin(operation, alternative, reason, {}, (now_us - self._began_us) / 1e6, now_us)

    def replicate(self, operation: str, degree: int | None, now_us: int) -> None:
        """Have so many processes compute an operation for good, or leave it to the law again (None)."""
        for unit, wanted in self.replication.obey(operation, degree, now_us):
            self._elastic.settle(unit, wanted)

    def wanted_alternatives(self) -> dict[str, WantedAlternative]:
        """Which alternative each operation is to use, for the commit record."""
        return self._exchanges.wanted()

    def alternatives(self) -> dict[str, AlternativesView]:
        """The alternatives of each operation that has some."""
        found = self._exchanges.view()
        for name, view in found.items():
            view.out = self._chooser.out(self._exchanges.operations[name])
        return found

    # --- the loop -----------------------------------------------------------------------------------------------------

    def tick(self, view: JobView, figures: list[OperationFigures] | None, now_us: int) -> list[Command]:
        """Look, decide, and act; ``figures`` are new heartbeats' worth, if there are.

        Raises
        ------
        WorkerFailed
            When the batch form, which the user has pinned, is unavailable.
        """
        commands: list[Command] = []
        if figures is not None:
            self._measures.on_figures(figures)
        if view.ending or not view.peers:
            return commands  # the workers come first: where places are few, slots must not take theirs
        if view.running:
            self._peers, self._began_us = view.peers, view.began_us
            commands += self._groups.know(view.peers, view.start_us)
            commands += self.replication.know(view.peers, view.start_us)
        busy = self._switches.wants_slots
        pinned = not self._options.advise and Form.BATCH in self._pins.values()
        at_work = 2 if self._may_stand_by else 1
        self._groups.want(at_work if busy else 1 if self._may_switch else 0, all_slots=pinned, is_work=busy)
        commands += self._groups.tick(now_us)
        commands += self.replication.tick(self._options.silence_us, now_us)
        if now_us - self._alive_us >= ALIVE_US:
            self._alive_us = now_us
            commands += self._groups.tell_all(s.StillThere())
        if not view.running:
            self._slotless_us = None
            return commands  # while workers start the first slots do so too; in a recovery nothing changes form
        wanted = pinned or (busy and not self._options.advise)
        if not wanted or self._groups.up or self._groups.given_up is not None:
            self._unserved_us = None
        elif self._unserved_us is None:
            self._unserved_us = now_us
        if self._groups.given_up is not None:
            self._do_without(self._groups.given_up, now_us)
        if now_us - self._control_us < CONTROL_US:
            return commands + self._carry_out(now_us)
        self._control_us = now_us
        self._measures.widths = self._elastic.widths()
        self._calling.clear()
        self._calling.update({name: Form.RECORD for name, each in self._exchanges.operations.items() if each.may_call})
        units = self._measures.units(self._groups.offered or self._groups.slots, self._options.interval_us, now_us)
        for switch in self._switcher.decide(now_us, units):
            self._take_switch(switch, now_us)
        standings, known = list(self._exchanges.operations.values()), self._measures.figures
        for exchange in self._chooser.decide(standings, units, known, self._groups.offered, now_us):
            self._take_exchange(exchange, now_us)
        costs_ns, at_s = self._measures.calibrated(Form.RECORD), (now_us - self._began_us) / 1e6
        self._elastic.tick(units, costs_ns, known, at_s, now_us)
        self._watch_slots(now_us)
        commands += self._carry_out(now_us)
        commands += self._pace(units)
        return commands + self._calibrate(now_us)

    def _do_without(self, why: str, now_us: int) -> None:
        """No slot can begin: fail if the user has pinned the batch form from the start, else go on without it."""
        for unit in self._plan.units:
            for index in unit.movable:
                self._pins[unit.name_at(index)] = Form.RECORD
        if self._without:
            return
        self._without = True
        if Form.BATCH in first_pins(self._plan).values():
            raise WorkerFailed(
                f"the batch form is unavailable: {why}.",
                hint="Every machine of the cluster must have what the pipeline imports; "
                'or let the job do without: forms="adaptive" or "record", and no pin to batch form.',
            )
        self._notes.append(f"{now_us / 1e6:.3f} s: batch form is given up: {why}")
        self._switches.call_back(f"batch form is given up: {why}", (now_us - self._began_us) / 1e6, now_us)

    @property
    def _may_stand_by(self) -> bool:
        """Whether a second group leaves a core to the session's other jobs, such as the queries of `transform`."""
        needed = (len(self._peers) or self._plan.workers) + self.replication.size + 2 * self._groups.slots + 1
        return self.places is None or self.places >= needed

    @property
    def _may_switch(self) -> bool:
        """Whether some operation may be put in batch form."""
        movable = [unit.name_at(index) for unit in self._plan.units for index in unit.movable]
        return any(self._pins.get(name) is not Form.RECORD for name in movable)

    def _take_switch(self, wanted: WantedSwitch, now_us: int) -> None:
        at_s = (now_us - self._began_us) / 1e6
        if self._options.advise:
            names = list(wanted.operations)
            self.advise(
                Advice(
                    at_s=round(at_s, 3),
                    operations=names,
                    to=wanted.to.value,
                    reason=wanted.reason,
                    inputs=wanted.inputs,
                )
            )
            return
        unit, chosen = self._plan.units[wanted.unit], wanted.chosen
        replicas: tuple[int, ...] = ()
        if not chosen:
            chosen, replicas = self.replication.instead_of_here(wanted.unit, now_us)
        self._switches.begin(unit, chosen, wanted.reason, wanted.inputs, at_s, now_us, replicas)

    def _take_exchange(self, wanted: WantedExchange, now_us: int) -> None:
        at_s = (now_us - self._began_us) / 1e6
        if self._options.advise:
            names, reason = [wanted.operation], wanted.reason
            self.advise(
                Advice(
                    at_s=round(at_s, 3), operations=names, to=wanted.alternative, reason=reason, inputs=wanted.inputs
                )
            )
            return
        self._exchanges.begin(wanted.operation, wanted.alternative, wanted.reason, wanted.inputs, at_s, now_us)

    def _watch_slots(self, now_us: int) -> None:
        """Call ranges back that stand still because no slots are left, however their forms were pinned."""
        if not self._switches.is_away or self._measures.slots_everywhere(len(self._peers)):
            self._slotless_us = None
        elif self._slotless_us is None:
            self._slotless_us = now_us
        elif now_us - self._slotless_us >= SLOTLESS_US:
            self._slotless_us = None
            why = self._groups.error or "the cluster has no free place"
            self._switches.call_back(f"no slots: {why}", (now_us - self._began_us) / 1e6, now_us)

    def _carry_out(self, now_us: int) -> list[Command]:
        everywhere = self._measures.slots_everywhere(len(self._peers))
        at_s = (now_us - self._began_us) / 1e6
        self._advice += self.replication.begin(at_s, now_us, advise=self._options.advise)
        switches, failed = self._switches.tick(everywhere, self._options.interval_us, now_us)
        self._note_ended(failed, now_us)
        orders: list[m.ToWorker] = [*switches, *self._exchanges.tick(self._switches.is_here)]
        return [Send(peer.worker, order) for order in orders for peer in self._peers]

    def _note_ended(self, ended: Sequence[SwitchEnded], now_us: int) -> None:
        for each in ended:
            if each.failed:
                self._switcher.failed(each.unit, now_us)
            else:
                self._switcher.switched(each.unit, each.range, now_us)

    def _pace(self, units: list[UnitMeasure]) -> list[Command]:
        """Adapt how long micro-batches gather to what the load needs."""
        commands: list[Command] = []
        bounds = IntervalBounds(self._options.interval_us, max(self._options.interval_us, 1_000_000))
        for unit in units:
            away = self._switches.range(unit.unit)
            if not away or self._plan.units[unit.unit].is_whole(away.first, away.last):
                continue  # what a micro-batch costs there hardly depends on its size: it gathers until a slot is free
            service_us = sum(
                1e6 * self._groups.slots / op.batch_eps for op in unit.operations if op.index in away and op.batch_eps
            )
            wanted = interval_us(unit.arrival_eps, service_us, self._groups.slots, BATCH_OVERHEAD_US, bounds)
            for order in self._switches.pace(unit.unit, wanted):
                commands += [Send(peer.worker, order) for peer in self._peers]
        return commands

    def _calibrate(self, now_us: int) -> list[Command]:
        commands: list[Command] = []
        for unit in self._plan.units if self._groups.up else ():
            at_us, wait_us = self._calibrations.get(unit.id, (0, CALIBRATE_US_MIN))
            wanted = [i for i in range(unit.instances) if self._measures.samples(unit, i) < SAMPLES]
            if now_us >= at_us and len(unit.repeatable) and unit.ops and wanted:
                self._calibrations[unit.id] = now_us + wait_us, min(2 * wait_us, CALIBRATE_US_MAX)
                for instance in wanted:
                    order = m.Calibrate(unit=unit.id, instance=instance, records=SAMPLE_RECORDS)
                    commands.append(Send(self._plan.worker_of(instance), order))
        return commands
