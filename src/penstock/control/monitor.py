"""The monitor half of the scheduler: sums up heartbeats into the figures of each operation, live and in total. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from penstock.control.changes import Advice, ChangeReport
from penstock.control.course import Course
from penstock.control.exchanges import AlternativesView
from penstock.control.replicas import ReplicasView
from penstock.control.rescaling import MoveReport
from penstock.control.staffing import StaffingView
from penstock.metrics import Histogram
from penstock.metrics.message import StatsMessage
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m


class OperationFigures(msgspec.Struct):
    """One operation over all of its instances; rates and latencies are those of the last moments."""

    name: str
    kind: str
    form: str
    instances: int
    in_eps: float
    out_eps: float
    selectivity: float
    """λ: records out for each record in."""
    queue_records: int
    service_us: float
    """Time spent on one record, over all instances."""
    p50_ms: float
    p99_ms: float
    records_in: int
    records_out: int
    late: int
    skipped: int
    retried: int
    dead_letters: int
    total_p50_ms: float
    total_p99_ms: float
    total_max_ms: float
    block_records: float = 0.0
    """Records in a block, or micro-batch, on average."""
    fallbacks: int = 0
    """Batches that the vectorised form could not handle and the loop did."""
    out_us: float = 0.0
    """The components of a record's latency here, on average: waiting outside, before a source has read it;"""
    wait_us: float = 0.0
    """waiting for the rest of its micro-batch;"""
    schedule_us: float = 0.0
    """the micro-batch's way to a slot, and its turn there;"""
    process_us: float = 0.0
    """being processed, with its block;"""
    transmit_us: float = 0.0
    """the way from the operation before: between processes, and in queues."""
    latency_us: float = 0.0
    """Mean latency of the records that came here."""
    reads: bool = False
    """Whether it is a source."""
    slowest_us: float = 0.0
    """Time spent on one record in the instance that takes longest, of those that have a fair share of the records."""
    timed_out: int = 0
    """Records that a source has dropped because they had waited for longer than ``event_timeout``;"""
    over_bound: int = 0
    """because more than ``queue_bound`` waited. Those that went to the dead letters count there too."""

    @property
    def components_us(self) -> dict[str, float]:
        """The components by name."""
        return {
            "out": self.out_us,
            "wait": self.wait_us,
            "schedule": self.schedule_us,
            "process": self.process_us,
            "transmit": self.transmit_us,
        }


class WorkerFigures(msgspec.Struct):
    """One worker process."""

    worker: int
    pid: int
    cpu_cores: float
    rss_mb: float
    cpu_s: float = 0.0
    """CPU time that its processes have used."""
    rss_mb_now: float = 0.0
    """Resident memory at the last heartbeat; ``rss_mb`` is the highest seen."""


class Status(msgspec.Struct):
    """A job at one moment: what `penstock top` shows."""

    job: str
    phase: str
    pid: int
    at_us: int
    uptime_s: float
    epoch: int
    epoch_ms: float
    operations: list[OperationFigures]
    workers: list[WorkerFigures]
    recoveries: int = 0
    """Times that instances were built anew from snapshots."""
    resumed_us: int = 0
    """When the last of these was over."""
    committed_us: int = 0
    """When the last epoch was committed."""
    start_us: int = 0
    """When the sources' schedules began; 0 before that."""
    began_us: int = 0
    """When the sources began to read in this run; 0 before that."""
    heard_us: int = 0
    """Of which moment the figures of operations are: that of the workers' last heartbeats, on average."""
    components_ms: dict[str, float] = msgspec.field(default_factory=dict)
    """Where the mean latency of the measured operation goes now: out, wait, schedule, process, transmit."""
    group_size: int = 0
    """Micro-batches that each task of the next group runs."""
    overhead: float | None = None
    """Share of scheduling in the time of a group, averaged."""
    switches: list[ChangeReport] = msgspec.field(default_factory=list)
    """The last switches and exchanges."""
    advice: list[Advice] = msgspec.field(default_factory=list)
    """With ``advise``: what would have been done, the last of it."""
    switches_total: int = 0
    """All of them so far; with ``advise``, all advice."""
    advise: bool = False
    switch_note: str = ""
    """Why an operation under pressure has just been left as it is, if one was."""
    slots: list[int] = msgspec.field(default_factory=list)
    """Processes that run micro-batches, or stand by for them."""
    waiting: list[str] = msgspec.field(default_factory=list)
    """What the job waits for, if it does: workers that are to start or are silent, cores, slots."""
    alternatives: dict[str, AlternativesView] = msgspec.field(default_factory=dict)
    """By operation that has some: which one is active, and what each costs."""
    placement: list[int] = msgspec.field(default_factory=list)
    """The worker of each instance, which has instance i of every operation, with its key groups and partitions."""
    moves: list[MoveReport] = msgspec.field(default_factory=list)
    """The last moves of instances between workers."""
    moves_total: int = 0
    staffing: StaffingView | None = None
    """How many workers there are to be, how busy they are, and why."""
    actions: list[str] = msgspec.field(default_factory=list)
    """What users have wanted of the job, the last of it: when, who, what."""
    replicas: list[ReplicasView] = msgspec.field(default_factory=list)
    """The ranges that may have some."""
    replica_pids: list[int] = msgspec.field(default_factory=list)
    """Processes of the pool, active or not."""
    saved: float | None = None
    """1 - r/r_over so far: the share of the pool's time that ranges did without; None without a pool."""
    replica_s: float = 0.0
    """Seconds of active replicas so far."""


class _Totals:
    """Cumulative figures of one operation, summed over instances."""

    def __init__(self, stats: Iterable[StatsMessage] = ()) -> None:
        self.form = "record"
        self.instances = 0
        self.records_in = self.records_out = self.busy_ns = self.queue_records = 0
        self.late = self.skipped = self.retried = self.dead_letters = 0
        self.blocks = self.fallbacks = self.timed_out = self.over_bound = 0
        self.entered_us = self.left_us = self.wait_us = self.schedule_us = 0
        self.latency = Histogram()
        self.busy: dict[int, tuple[int, int]] = {}
        """By instance: records in, and the time that they took."""
        for each in stats:
            self.busy[each.instance] = each.records_in, each.busy_ns
            self.form = each.form
            self.instances += 1
            self.records_in += each.records_in
            self.records_out += each.records_out
            self.busy_ns += each.busy_ns
            self.queue_records += each.queue_records
            self.late += each.late
            self.skipped += each.skipped
            self.retried += each.retried
            self.dead_letters += each.dead_letters
            self.timed_out += each.timed_out
            self.over_bound += each.over_bound
            self.blocks += each.blocks
            self.fallbacks += each.fallbacks
            self.entered_us += each.entered_us
            self.left_us += each.left_us
            self.wait_us += each.wait_us
            self.schedule_us += each.schedule_us
            self.latency.merge(Histogram(each.latency_counts, each.latency_max_us))


@dataclass(frozen=True, slots=True)
class _Times:
    """Mean times of the records that came to an operation, from when they were due."""

    entered_us: float = 0.0
    left_us: float = 0.0
    wait_us: float = 0.0
    schedule_us: float = 0.0

    @staticmethod
    def between(now: _Totals, before: _Totals) -> _Times:
        """Those between two looks."""
        count = now.latency.total - before.latency.total
        if not count:
            return _Times()
        return _Times(
            (now.entered_us - before.entered_us) / count,
            (now.left_us - before.left_us) / count,
            (now.wait_us - before.wait_us) / count,
            (now.schedule_us - before.schedule_us) / count,
        )


def _slowest_us(now: _Totals, before: _Totals) -> float:
    """Time for a record between two looks in the slowest instance; one that got few says little."""
    found: list[tuple[int, int]] = []
    for instance, (came, busy_ns) in now.busy.items():
        came_before, busy_before_ns = before.busy.get(instance, (0, 0))
        if came > came_before and busy_ns >= busy_before_ns:
            found.append((came - came_before, busy_ns - busy_before_ns))
    fair = sum(came for came, _ in found) / max(1, len(found)) / 2
    return max((busy_ns / came / 1000 for came, busy_ns in found if came >= fair), default=0.0)


def _kinds(plan: Plan) -> dict[str, str]:
    """Every operation of the plan in order, with its kind; the order of all figures."""
    kinds: dict[str, str] = {}
    for unit in plan.units:
        if unit.source is not None:
            kinds[unit.name] = unit.source.kind
        kinds.update((spec.name, spec.operation.kind) for spec in unit.ops)
    return kinds


def _before(plan: Plan) -> dict[str, str]:
    """By operation: the one that its records come from, along the first input where there are several."""
    before: dict[str, str] = {}
    for unit in plan.units:
        names = [unit.name] if unit.source is not None else []
        names += [spec.name for spec in unit.ops]
        before.update(zip(names[1:], names, strict=False))
        inputs = plan.inputs(unit.id)
        while inputs and names:
            producer = plan.units[inputs[0].producer]
            if inputs[0].op_index >= 0 or producer.source is not None:
                index = inputs[0].op_index
                before[names[0]] = producer.ops[index].name if index >= 0 else producer.name
                break
            inputs = plan.inputs(producer.id)  # a merge has no operation of its own
    return before


class Monitor:
    """Keeps the last two heartbeats of every worker and answers with figures, which are those of this run.

    Parameters
    ----------
    resumed : bool
        Whether the run goes on from a checkpoint: a worker counts once it has said what it begins with.
    """

    def __init__(self, plan: Plan, *, resumed: bool = False) -> None:
        self._course = Course()
        self._silent = set(range(plan.workers)) if resumed else set()
        """Workers that have not said yet what they begin with."""
        self._cpu_us: dict[int, int] = {}
        """What the processes of each worker that are gone have used."""
        self._kinds = _kinds(plan)
        self._from = _before(plan)
        self._sources = {unit.name for unit in plan.units if unit.source is not None}
        self._last: dict[int, m.Heartbeat] = {}
        self._before: dict[int, m.Heartbeat] = {}
        # By operation and instance, whichever worker has it: what was told last, before that, and at first.
        self._told: dict[tuple[str, int], StatsMessage] = {}
        self._told_before: dict[tuple[str, int], StatsMessage] = {}
        self._told_first: dict[tuple[str, int], StatsMessage] = {}
        self._rss_mb_max: dict[int, float] = {}
        self._first: dict[int, m.Heartbeat] = {}
        self._warm: dict[str, Histogram] = {}

    def on_heartbeat(self, heartbeat: m.Heartbeat) -> None:
        """Take a worker's figures."""
        worker = heartbeat.worker
        if worker in self._silent:
            return
        last = self._last.get(worker)
        if last is not None and last.incarnation != heartbeat.incarnation:
            self._cpu_us[worker] = last.cpu_us  # with those before it
        heartbeat = msgspec.structs.replace(
            heartbeat,
            stats=[self._course.take(heartbeat.incarnation, each) for each in heartbeat.stats],
            cpu_us=heartbeat.cpu_us + self._cpu_us.get(worker, 0),
        )
        if last is not None:
            self._before[worker] = last
        for each in heartbeat.stats:
            key = each.operation, each.instance
            if key in self._told:
                self._told_before[key] = self._told[key]
            self._told[key] = each
            self._told_first.setdefault(key, each)
        self._first.setdefault(worker, heartbeat)
        self._last[worker] = heartbeat
        self._rss_mb_max[worker] = max(self._rss_mb_max.get(worker, 0.0), heartbeat.rss_bytes / 1e6)

    def retire(self, worker: int) -> None:
        """A worker has left, and others tell of the instances that it had."""
        for held in (self._last, self._before, self._first, self._rss_mb_max):
            held.pop(worker, None)

    def begin_after(self, worker: int, before: Sequence[StatsMessage]) -> None:
        """Take what a worker's instances have counted in the runs before this one."""
        self._course.begin_after(before)
        self._silent.discard(worker)

    def before(self, operations: Collection[str]) -> int:
        """Records that came to these operations in the runs before this one."""
        return self._course.records_before(operations)

    @property
    def sources(self) -> set[str]:
        """Names of the sources."""
        return self._sources

    def _totals(self, stats: Iterable[StatsMessage]) -> dict[str, _Totals]:
        by_name: dict[str, list[StatsMessage]] = {name: [] for name in self._kinds}
        for each in stats:
            by_name[each.operation].append(each)
        return {name: _Totals(told) for name, told in by_name.items()}

    @property
    def heard_us(self) -> int:
        """When the last heartbeats were sent, on average over the workers; 0 before there are any."""
        return sum(each.at_us for each in self._last.values()) // max(1, len(self._last))

    def _seconds(self) -> float:
        spans = [self._last[w].at_us - b.at_us for w, b in self._before.items()]
        return max(spans) / 1e6 if spans else 0.0

    def operations(self) -> list[OperationFigures]:
        """Figures of every operation, in the order of the pipeline."""
        return self._compared(self._totals(self._told_before.values()), self._seconds())

    def _compared(self, before: dict[str, _Totals], seconds: float) -> list[OperationFigures]:
        now = self._totals(self._told.values())
        figures = [self._figures(name, now[name], before[name], seconds) for name in self._kinds]
        times = {name: _Times.between(now[name], before[name]) for name in self._kinds}
        for each in figures:
            self._add_components(each, times)
        return figures

    def measured(self) -> list[OperationFigures]:
        """Figures of every operation since the end of the warm-up; without rates."""
        return self._compared(self._totals(self._told_first.values()), 0.0)

    def components_ms(self, operation: str, figures: list[OperationFigures]) -> dict[str, float]:
        """Take the mean latency at an operation apart: components on a record's way there, which add up to it.

        Means are over the records that come to each operation. Where few of a large block's records go on, those that
        do can have a shorter way on average than all had before; then what was before counts by so much less.
        """
        found = {each.name: each for each in figures}
        sums: dict[str, float] = {}
        for name in self.path(operation):
            for component, mean_us in found[name].components_us.items():
                sums[component] = sums.get(component, 0.0) + mean_us / 1000
        total_ms, mean_ms = sum(sums.values()), found[operation].latency_us / 1000
        share = mean_ms / total_ms if total_ms > mean_ms else 1.0
        return {component: round(share * each_ms, 4) for component, each_ms in sums.items()}

    def path(self, operation: str) -> list[str]:
        """The operations that a record goes through up to this one, source first."""
        names = [operation]
        while names[0] in self._from:
            names.insert(0, self._from[names[0]])
        return names

    def _add_components(self, each: OperationFigures, times: dict[str, _Times]) -> None:
        own, origin = times[each.name], self._from.get(each.name)
        each.latency_us, each.wait_us, each.schedule_us = own.left_us, own.wait_us, own.schedule_us
        each.process_us = max(0.0, own.left_us - own.entered_us - own.wait_us - own.schedule_us)
        if origin is None:
            each.out_us = own.entered_us
        else:
            each.transmit_us = max(0.0, own.entered_us - times[origin].left_us)

    def _figures(self, name: str, now: _Totals, before: _Totals, seconds: float) -> OperationFigures:
        came, went = now.records_in - before.records_in, now.records_out - before.records_out
        basis = (went, came) if came else (now.records_out, now.records_in)
        busy_ns, handled = (now.busy_ns - before.busy_ns, came) if came else (now.busy_ns, now.records_in)
        recent = now.latency.since(before.latency)
        return OperationFigures(
            name=name,
            kind=self._kinds[name],
            form=now.form,
            instances=now.instances,
            in_eps=came / seconds if seconds else 0.0,
            out_eps=went / seconds if seconds else 0.0,
            selectivity=basis[0] / basis[1] if basis[1] else 0.0,
            queue_records=now.queue_records,
            service_us=busy_ns / handled / 1000 if handled else 0.0,
            p50_ms=recent.quantile(0.5) / 1000,
            p99_ms=recent.quantile(0.99) / 1000,
            records_in=now.records_in,
            records_out=now.records_out,
            late=now.late,
            skipped=now.skipped,
            retried=now.retried,
            dead_letters=now.dead_letters,
            total_p50_ms=now.latency.quantile(0.5) / 1000,
            total_p99_ms=now.latency.quantile(0.99) / 1000,
            total_max_ms=now.latency.maximum / 1000,
            block_records=came / max(1, now.blocks - before.blocks) if came else 0.0,
            fallbacks=now.fallbacks,
            reads=name in self._sources,
            slowest_us=_slowest_us(now, before if came else _Totals()),
            timed_out=now.timed_out,
            over_bound=now.over_bound,
        )

    def begin_measuring(self) -> None:
        """Cut the warm-up: latencies, CPU and memory count from the last heartbeats on."""
        self._warm = {name: totals.latency for name, totals in self._totals(self._told.values()).items()}
        self._first, self._told_first = dict(self._last), dict(self._told)
        self._rss_mb_max.clear()

    def latency(self, operation: str) -> Histogram:
        """Latencies of one operation in microseconds, since the start or the end of the warm-up."""
        total = self._totals(self._told.values())[operation].latency
        return total.since(self._warm[operation]) if operation in self._warm else total

    def workers(self, pids: dict[int, int]) -> list[WorkerFigures]:
        """Figures of the worker processes; ``rss_mb`` is the highest seen."""
        figures = []
        for worker, last in sorted(self._last.items()):
            first = self._first[worker]
            seconds = (last.at_us - first.at_us) / 1e6
            cores = (last.cpu_us - first.cpu_us) / 1e6 / seconds if seconds else 0.0
            rss_mb = last.rss_bytes / 1e6
            rss_mb_max = self._rss_mb_max.get(worker, rss_mb)
            figures.append(WorkerFigures(worker, pids.get(worker, 0), cores, rss_mb_max, last.cpu_us / 1e6, rss_mb))
        return figures

    def events_in(self) -> int:
        """Records that the sources have read in this run."""
        totals = self._totals(self._told.values())
        return sum(totals[name].records_in for name in self._sources)

    def offsets(self) -> dict[str, list[int]]:
        """How many records each partition of every source has read, in the order of the partitions."""
        read: dict[str, dict[int, int]] = {name: {} for name in self._kinds if name in self._sources}
        for heartbeat in self._last.values():
            for name, partitions in heartbeat.offsets.items():
                read[name].update(partitions)
        return {name: [offset for _, offset in sorted(partitions.items())] for name, partitions in read.items()}

    def audit(self, *, drained: bool) -> Audit:
        """Compare what was written to every edge with what was read from it, once all of it could be."""
        written: dict[int, int] = {}
        read: dict[int, int] = {}
        audit = Audit()
        for heartbeat in self._last.values():
            for each in heartbeat.edges:
                written[each.edge] = written.get(each.edge, 0) + each.records_written
                read[each.edge] = read.get(each.edge, 0) + each.records_read
                audit.reordered += each.blocks_disordered
                audit.blocks_duplicate += each.blocks_duplicate
                audit.blocks_refused += each.blocks_refused
                audit.blocks_resent += each.blocks_resent
        if not drained:
            return audit
        missing = [written[edge] - read[edge] for edge in written]
        audit.lost = sum(max(0, records) for records in missing)
        audit.duplicated = sum(max(0, -records) for records in missing)
        return audit


class Audit(msgspec.Struct):
    """Conservation of records over all edges, once the job has drained.

    A job that was stopped at once leaves records under way, which nobody can tell from lost ones: none are counted.
    Blocks that the transport brought twice or out of order were refused at the receiver, and are counted here.
    """

    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    blocks_duplicate: int = 0
    blocks_refused: int = 0
    blocks_resent: int = 0
