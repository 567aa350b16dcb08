"""Running pipelines: `start` returns a handle, `run` blocks and turns Ctrl-C into drain, then stop."""

from __future__ import annotations

import inspect
import os
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from penstock.connectors.base import Sink
from penstock.connectors.store import is_url
from penstock.control.adaptation import Adaptation
from penstock.control.events import GroupJobEnded, Replace, Withdraw
from penstock.control.groups import Submit
from penstock.control.monitor import Status
from penstock.control.pins import check_pins
from penstock.control.rescaling import MoveReport
from penstock.control.resume import check_name, check_renamed
from penstock.control.scheduler import Phase
from penstock.durations import parse_us
from penstock.errors import InvalidGraph, InvalidOption, TypeMismatch, nearest
from penstock.metrics import Histogram
from penstock.operators import DEAD_LETTERS
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.plan import Plan, check_serializable
from penstock.protocol.commands import ReplicateOperation, ScaleJob, StopJob, SwitchForm, UseAlternative
from penstock.runtime.addresses import driver_place
from penstock.runtime.attempts import Attempt, look
from penstock.runtime.attending import attend
from penstock.runtime.capture import capture
from penstock.runtime.clock import own_clock
from penstock.runtime.driver import Driver
from penstock.runtime.ends import Ends
from penstock.runtime.host import Assignment
from penstock.runtime.live import Tables, notebook, watch
from penstock.runtime.metrics_out.exporter import Exporter
from penstock.runtime.metrics_out.samples import OutletFigures
from penstock.runtime.packing import check_sent
from penstock.runtime.progress import Progress
from penstock.runtime.queries import open_service
from penstock.runtime.report import Report, make_report
from penstock.runtime.scratch import ScratchServer, shares_nothing
from penstock.runtime.sessions import check_master
from penstock.runtime.sharing import leave_sign, own_directory, remove_sign
from penstock.runtime.shipping import ship
from penstock.runtime.spark import GroupJobs, Hosting, close_session, open_fitted, runs_here
from penstock.runtime.tables import TableService, open_tables
from penstock.runtime.transport import Keys, Node

END_S = 20.0
"""How long Spark may take to see its tasks end."""
JOIN_S = 0.1
"""Between two looks for workers that came too late."""
STOP_S = 2.0
"""How long they may take when the job was not to finish its work: a function that hangs is not waited for."""


def plan_of(*pipelines: Pipeline, dead_letters: Sink | None = None, **options: Any) -> Plan:
    """Check pipelines and options and lay them out; everything that can be refused is refused here, before Spark."""
    if not pipelines:
        raise InvalidGraph("there is nothing to run.", hint="Give a pipeline: ps.run(stream.to(ps.console())).")
    whole: Pipeline | None = None
    for each in pipelines:
        if not isinstance(each, Pipeline):
            raise TypeMismatch(what=f"{each!r} is not a pipeline.", hint="End the stream with .to(…).")
        whole = each if whole is None else whole + each
    assert whole is not None
    known = list(inspect.signature(Options.of).parameters)
    for name, value in options.items():
        if name not in known:
            raise InvalidOption(option=name, given=value, allowed=", ".join(known), hint=nearest(name, known))
    checked = Options.of(**options)
    check_sent(checked)
    last, basis = look(checked)
    sinks = None
    if last is not None:
        check_name(last.job, checked.name, checked.checkpoint)
        told = {"epoch": last.epoch, "job_id": last.job_id}
        kinds = {output.name: output.kind for output in last.outputs}
        sinks = {n: {**state, **told, "operation": n, "kind": kinds[n]} for n, state in last.sinks.items()}
        dead = dead_letters or whole.dead_letters
        own = {node.name: node.sink for node in whole.nodes() if node.sink is not None}
        check_renamed(sinks, {**own, **({DEAD_LETTERS: dead} if dead is not None else {})})
    plan = replace(Plan.of(whole.graph(sinks), checked, dead_letters or whole.dead_letters, sinks=sinks), basis=basis)
    check_pins(plan)
    check_master(plan)
    from pyspark.cloudpickle import dumps

    check_serializable(plan, dumps)
    return plan


class Job:
    """A running job; made by :func:`start`."""

    def __init__(self, plan: Plan) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._scratch_server: ScratchServer | None = None
        self._tables: TableService | None = None
        if not plan.options.checkpoint:
            self._scratch = tempfile.TemporaryDirectory(prefix=f"penstock-{plan.options.name}-")
            plan = replace(plan, options=replace(plan.options, checkpoint=self._scratch.name))
        elif not is_url(plan.options.checkpoint):
            # Workers of a cluster have other working directories.
            plan = replace(plan, options=replace(plan.options, checkpoint=os.path.abspath(plan.options.checkpoint)))  # noqa: PTH100
        self._attempt = Attempt.begin(plan)
        plan, restart = self._attempt.plan, self._attempt.restart
        self._keys = Keys.create()
        try:
            self._exporter = Exporter(plan)
        except BaseException:
            self._attempt.release()
            raise
        self._ends = Ends(plan)
        try:
            self._ends.reserve(is_local=runs_here(plan.options.master))
            self._session, plan = open_fitted(plan)
        except BaseException:
            self._ends.release()
            self._exporter.close()
            self._attempt.release()
            raise
        self._plan = self._attempt.plan = plan
        self._closed = threading.Lock()
        self._open = True
        self._hasty = False
        try:
            self._ends.claim()
            resumption = restart.resumption() if restart is not None else None
            ship(self._session, plan.options)
            host = driver_place(self._session, plan.options)
            self._sign = leave_sign(self._plan.options.checkpoint)
            self._node = Node(self._keys, host)
            self._driver = Driver(self._attempt, self._node, self._have_spark, resumption)
            own_host = host.host if host.is_loopback else ""
            self._queries = open_service(self._session, self._plan, self._keys, host, own_host)
            queries = self._queries.assignment if self._queries is not None else None
            self._tables = open_tables(self._session, self._plan, self._keys, host, own_host)
            tables = self._tables.assignment if self._tables is not None else None
            if shares_nothing(self._plan.options, self._session.sparkContext.master):
                directory = Path(self._plan.options.checkpoint) / "snapshots"
                self._scratch_server = ScratchServer(self._keys, host, directory)
            scratch = self._scratch_server.endpoint if self._scratch_server is not None else ""
            is_local = self._session.sparkContext.master.startswith("local")
            assignment = Assignment(
                self._node.endpoint,
                self._keys,
                own_host,
                self._sign,
                own_clock(),
                host.ports,
                ("", 0) if is_local else own_directory(),
                scratch,
                queries,
                tables,
            )
            self._hosting = Hosting(
                self._session, self._plan, assignment, self._driver.post, lambda: self._driver.phase is Phase.STARTING
            )
            self._groups = GroupJobs(
                self._session,
                self._plan,
                assignment,
                lambda group, error: self._driver.post(GroupJobEnded(group, error)),
            )
        except BaseException:
            if self._tables is not None:
                self._tables.close()
            if self._scratch_server is not None:
                self._scratch_server.close()
            self._ends.release()
            close_session()
            self._exporter.close()
            self._attempt.release()
            raise
        self._live = Tables(lambda: self.progress, self._driver.ended.wait)
        self._driver.start()
        self._exporter.start(self._driver.status, self._driver.latency_us)
        self._hosting.start()

    def _have_spark(self, command: Replace | Withdraw | Submit) -> None:
        match command:
            case Replace():
                self._hosting.replace(command)
            case Withdraw():
                self._hosting.withdraw(command)
            case Submit():
                self._groups.submit(command)

    @property
    def name(self) -> str:
        """Name of the job."""
        return self._plan.options.name

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self._plan

    @property
    def start_us(self) -> int:
        """When the sources' schedules began; 0 before that."""
        return self._driver.start_us

    @property
    def began_us(self) -> int:
        """When the sources began to read in this run; 0 before that."""
        return self._driver.began_us

    @property
    def run_id(self) -> str:
        """What this run's metrics are tagged with; another one each time that a job is started."""
        return self._exporter.run

    @property
    def metrics(self) -> list[OutletFigures]:
        """How each place that ``metrics`` names fares: samples sent and dropped, attempts failed."""
        return self._exporter.figures

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self._driver.ended.is_set()

    def status(self) -> Status:
        """Live figures: per operation the rates, λ, queue, service time, latencies."""
        return self._driver.status()

    @property
    def progress(self) -> Progress:
        """How far the job is: counts, rates, queues and latencies, as a table where it is shown."""
        sinks = set(self._plan.sinks) - {DEAD_LETTERS}
        return Progress.of(self.status(), self._driver.monitor.sources, sinks, self._driver.error)

    def watch(self, timeout: str | float | None = None) -> None:
        """Show the progress until the job ends, for ``timeout`` at most: a live table in a notebook, lines elsewhere.

        An interrupt ends the watching, not the job.
        """
        seconds = None if timeout is None else parse_us(timeout, option="timeout", allow_zero=True) / 1e6
        watch(lambda: self.progress, self._driver.ended, seconds)

    def __repr__(self) -> str:
        return f"<Job {self.progress.headline.removeprefix('job ')}>"

    def _repr_mimebundle_(self, **wanted: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self.progress._repr_html_()}

    def _ipython_display_(self) -> None:
        display = notebook()
        if display is None:
            print(repr(self))
        else:
            self._live.show(display)

    def __dir__(self) -> list[str]:
        return [name for name in dir(type(self)) if not name.startswith("_")]

    def latency_us(self) -> Histogram:
        """Latencies so far where end-to-end latency is taken, see :class:`Report`; two moments can be subtracted."""
        return self._driver.latency_us()

    def begin_measuring(self) -> None:
        """Cut the warm-up: the report's latencies, CPU and memory count from now on."""
        self._driver.begin_measuring()

    def switch(self, *operations: str, to: str) -> None:
        """Settle the form of operations while the job runs; returns at once, see :meth:`adaptation` for the effect.

        Parameters
        ----------
        *operations : str
            Names, as ``penstock explain`` shows them; those in batch form must be next to each other.
        to : {"batch", "record", "auto"}
            The form, or "auto": leave it to the control loop again.
        """
        self._driver.obey(SwitchForm(list(operations), to))

    def use(self, operation: str, alternative: str) -> None:
        """Have an operation use one of its alternatives; returns at once, see :meth:`adaptation` for the effect.

        Parameters
        ----------
        operation : str
            Name that was given to :meth:`Stream.alternatives`.
        alternative : str
            Name of the alternative, or "auto": the job chooses again, where ``prefer`` says how.
        """
        self._driver.obey(UseAlternative(operation, alternative))

    def scale(self, workers: int | str) -> None:
        """Run the job on another number of workers; returns at once, see :meth:`moves` and :meth:`status`.

        Each worker is a Spark task. New ones are ordered from Spark; instances move to them, with their key groups and
        source partitions, one after the other while the rest works. A worker that has nothing left ends its task, so
        that Spark can give the executor back.

        Parameters
        ----------
        workers : int or "auto"
            1 to the job's ``parallelism``; "auto": the job chooses, within ``workers=(2, 6)`` if that was given.

        Examples
        --------
        >>> job = ps.start(pipeline, parallelism=8, workers=2)
        >>> job.scale(6)
        """
        self._driver.obey(ScaleJob(workers))

    def replicate(self, operation: str, replicas: int | str) -> None:
        """Have so many processes compute an operation from now on; returns at once, see :meth:`adaptation`.

        Parameters
        ----------
        operation : str
            One with ``replicas=``.
        replicas : int or "auto"
            Within its ``replicas=`` and the job's pool; 1: the worker itself. "auto": the job chooses.
        """
        self._driver.obey(ReplicateOperation(operation, replicas))

    def moves(self) -> list[MoveReport]:
        """Every move of an instance between two workers, with its pause and what was loaded ahead."""
        return self._driver.moves()

    def adaptation(self) -> Adaptation:
        """Switches of form with their reasons, notes on what was not switched and why, groups, costs of both forms."""
        return self._driver.adaptation()

    def drain(self) -> None:
        """Stop reading, finish and commit what is under way, and end; returns at once, see :meth:`wait`."""
        self._driver.obey(StopJob())

    def stop(self) -> None:
        """End at once; what is not committed stays invisible."""
        self._hasty = True
        self._driver.obey(StopJob(at_once=True))

    def wait(self, timeout: str | float | None = None) -> Report | None:
        """Wait for the end; return the report, or None if the time was over first.

        Raises
        ------
        PenstockError
            The reason, if the job failed.
        """
        seconds = None if timeout is None else parse_us(timeout, option="timeout", allow_zero=True) / 1e6
        if not self._driver.ended.wait(seconds):
            return None
        if self._driver.error is not None:
            self._close()
            raise self._driver.error.with_traceback(None)
        report = make_report(self._plan, self._driver)  # before Spark's own end, which is not part of the run
        self._close()
        return report

    def _close(self) -> None:
        with self._closed:
            if not self._open:
                return
            self._open = False
            self._exporter.close()
            unfinished = self._hasty or self._driver.error is not None or not self.began_us
            unfinished = unfinished or self._hosting.has_replaced
            deadline = monotonic() + (STOP_S if unfinished else END_S)
            while not (ended := self._hosting.join(JOIN_S)) and monotonic() < deadline:
                self._driver.dismiss()
            if not ended:
                self._hosting.cancel()
                self._hosting.join(END_S)
            deadline = monotonic() + STOP_S
            while not (ended := self._groups.join(JOIN_S)) and monotonic() < deadline:
                self._driver.dismiss()  # slots that come up only now
            if not ended:
                self._groups.cancel()
            if self._queries is not None:
                self._queries.close()
            if self._tables is not None:
                self._tables.close()
            self._node.close(linger_ms=0)
            close_session()
            self._ends.release()
            remove_sign(self._sign)
            self._attempt.release()
            if self._scratch_server is not None:
                self._scratch_server.close()
            if self._scratch is not None:
                self._scratch.cleanup()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            self.stop()
            self._driver.ended.wait(END_S)
        self._close()


def start(*pipelines: Pipeline, dead_letters: Sink | None = None, **options: Any) -> Job:
    """Start pipelines as one job and return its handle.

    Parameters
    ----------
    *pipelines : Pipeline
        What :meth:`Stream.to` returned; they may share streams.
    dead_letters : Sink, optional
        Takes the bad records of operations with ``on_error="dead_letter"``.
    name : str
        Name of the job, shown by ``penstock top``. Default ``"job"``.
    parallelism : int
        Instances of keyed operations, and the most workers that the job may have. Default: the most that ``workers=``
        says, else the number of cores, at most 8.
    workers : int or (int, int)
        Workers that the job begins with; :meth:`Job.scale` changes their number. Default: ``parallelism``. The least
        and the most, ``(2, 6)``: it begins with the least, and has as many as the load needs (see docs/scaling.md).
    worker_interval : str
        How often the number of workers is decided, where that is left to the job. Default ``"1s"``.
    master : str
        Spark master. Default: Spark embedded in this process.
    epoch : str
        Interval between commits. Default ``"1s"``.
    idle : str
        After so long without input a source no longer holds event time back. Default ``"2s"``.
    queue_records : int
        Records that may wait on one edge before its producer pauses.
    forms : {"adaptive", "record", "batch"}
        Whether operations change form with the load, or stay in one. Default ``"adaptive"``.
    pin : dict
        Form by operation, ``{"score": "batch"}``: never changed.
    advise : bool
        Report the switches that would be made, and make none.
    interval : str
        Least time that a micro-batch gathers. Default ``"50ms"``.
    slots, group_size : int
        Tasks that run micro-batches side by side (default: as many as workers), and how many each runs (tuned).
    replicas : int
        Processes that stand by, so that operations with a slow function can be computed by several of them side by
        side; 0, the default: as many as operations ask for with their own ``replicas=``. See docs/replicas.md.
    grouping : {"load", "shuffle"}
        Which replica gets the next records: the least utilised one (the default), or each in turn.
    replica_interval : str
        How often the number of active replicas is decided, where that is left to the job (default: ``"1s"``).
    event_timeout : str
        Drop records that have waited at their source for longer than this. Default: none are dropped.
    queue_bound : int
        Of more records than this that wait at a source instance, drop the oldest. Default: none are dropped. What
        either drops is counted at the source, by its cause, and goes to the dead letters of its chain if it has them.
    checkpoint : path
        Directory for snapshots and commits. A job that is started again with it goes on where the last commit
        was; without it, only lost workers are recovered. Machines that share no directory with this one need a
        URL (``"s3://…"``), else the driver keeps the state of their workers, up to 8 GB.
    bootstrap : path
        What `ps.bootstrap` has written: the job begins with that state, and at that position, unless its checkpoint
        has gone further already.
    driver_address, bind_address, ports : str
        Where executors reach this process, what it listens at if that differs; ports of all processes, ``"4000-4200"``.
    py_files, files : list of str
        Modules, packages and archives that workers import, and files that they open; see docs/cluster.md.
    environment : path
        On a cluster: the Python that workers run, as ``penstock pack`` has packed it.
    shrink_after : str
        A worker that is not heard of for so long leaves the job to the others. Default ``"10m"``, at least ``"2s"``. It
        must be longer than Spark takes to start a process, and than any call of a function: a worker is silent then.
    metrics : str or list of str
        Where samples of the live figures go, twice a second, as in ``"prometheus:9464"``; see docs/metrics.md.
    """
    capture(pipelines, dead_letters, None, options)
    return Job(plan_of(*pipelines, dead_letters=dead_letters, **options))


def run(
    *pipelines: Pipeline, duration: str | float | None = None, dead_letters: Sink | None = None, **options: Any
) -> Report:
    """Run pipelines as one job until their sources end, for ``duration``, or until Ctrl-C; return the report.

    Ctrl-C once drains and commits, twice stops at once. The other parameters are those of :func:`start`.
    """
    capture(pipelines, dead_letters, duration, options)
    seconds = None if duration is None else parse_us(duration, option="duration") / 1e6
    with start(*pipelines, dead_letters=dead_letters, **options) as job:
        return attend(job, seconds)
