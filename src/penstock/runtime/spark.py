"""Spark as the host of the workers: one session per process, one long-running task per worker."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.control.events import CoresSeen, HostEnded, OrderEnded, Replace, TasksFailed, Withdraw
from penstock.control.groups import Submit
from penstock.errors import SessionRefused, SparkFailed
from penstock.pipeline.plan import Plan
from penstock.runtime.addresses import spark_settings
from penstock.runtime.host import Assignment, run_worker
from penstock.runtime.interrupts import ending_interrupts
from penstock.runtime.java import check_java, end_jvm
from penstock.runtime.packing import check_unpacked, environment_settings, python_of
from penstock.runtime.quiet import quiet_start
from penstock.runtime.sessions import (
    SECRET_VARIABLE,
    UNAUTHENTICATED_VARIABLE,
    cores_of,
    fitted,
    is_unauthenticated,
)
from penstock.runtime.slots import GroupTask, run_slot
from penstock.runtime.transport import LOOPBACK
from penstock.spark.failures import failures
from penstock.spark.sessions import TASK_FAILURES_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_SLOTS_MIN = 32

WATCH_S = 1.0
"""Between two looks at Spark's cores and failed tasks."""
_OTHER_PYTHON = (
    "No module named 'penstock",
    "No module named penstock",
    "PYTHON_VERSION_MISMATCH",
    "Python in worker has different version",
    "Cannot run program",
    "No module named 'pyspark",
    "No module named pyspark",
    "No module named 'pyarrow",
    "No module named 'msgspec",
)
"""What Spark says where the workers' Python is not the driver's."""

_lock = threading.Lock()
_users = 0
_own: SparkSession | None = None


def runs_here(master: str) -> bool:
    """Whether a job's workers will be on this machine: by the session that there is, or by the master it asks for."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return (master if context is None else str(context.master)).startswith("local")


def open_session(master: str, workers: int, name: str, more: Mapping[str, str] | None = None) -> SparkSession:
    """Return the process's Spark session, starting one if there is none; pair with `close_session`."""
    global _users, _own
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    with _lock:
        if is_remote() or os.environ.get("SPARK_REMOTE"):
            what = (
                "it is one of Spark Connect, whose driver is elsewhere: take one with a master, and unset SPARK_REMOTE"
            )
            raise SessionRefused([what])
        # Our own first: the active one may be a session for queries beside it, whose settings do for queries only.
        session = _own or SparkSession.getActiveSession() or SparkSession._instantiatedSession
        if session is None or session.sparkContext._jsc is None:
            try:
                # In a thread of its own: in the main one, pyspark would take Ctrl-C over.
                with ending_interrupts(end_jvm), ThreadPoolExecutor(1) as beside:
                    check_java()
                    session = beside.submit(_start, SparkSession.builder, master, workers, name, more or {}).result()
            except KeyboardInterrupt:
                end_jvm()
                _forget()
                raise
            _own = session
        _users += 1
        return session


def open_fitted(plan: Plan) -> tuple[SparkSession, Plan]:
    """Return the Spark session, and the plan as it can host it."""
    options = plan.options
    most = max(plan.workers, options.workers_most)
    settings = {**spark_settings(options), **environment_settings(options)}
    session = open_session(options.master, most + plan.replicas, options.name, settings)
    try:
        check_unpacked(session, options)
        if is_own(session):
            return session, plan
        plan, note = fitted(plan, session)
    except BaseException:
        close_session()
        raise
    if note:
        warnings.warn(note, stacklevel=4)
    return session, plan


def is_own(session: SparkSession) -> bool:
    """Whether Penstock has started a session's Spark, and not the user."""
    return _own is not None and session.sparkContext is _own.sparkContext


def _start(builder: Any, master: str, workers: int, name: str, more: Mapping[str, str]) -> SparkSession:
    settings = {
        "spark.app.name": f"penstock-{name}",
        **_authentication(master),
        # Spark's own page costs memory, and shows little of a job whose Spark is embedded here.
        "spark.ui.enabled": str(not master.startswith("local")).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.task.maxFailures": str(TASK_FAILURES_MAX),
        # A second process for a worker that seems slow would take its place.
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "penstock.runtime.daemon",
        # The tasks of queries are forked from the daemon that workers and slots are forked from, and share its memory,
        # only if Spark gives all the same environment; with this setting it does.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
        **more,
    }
    if master.startswith("local"):
        # Slots are only threads here: enough for this job's workers, and for jobs that come after it in this process.
        threads = re.match(r"local\[(\*|\d+)", master)
        # Without the second figure Spark would end the job with the first lost worker.
        master = f"local[{threads[1] if threads else max(2 * workers, LOCAL_SLOTS_MIN)},{TASK_FAILURES_MAX}]"
        logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        settings |= {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            # Queries are few and small here: nothing to optimise, nothing to compile.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.catalogImplementation": "in-memory",
            # The embedded JVM only schedules: a small, quickly started one leaves the cores to the workers.
            "spark.driver.memory": "512m",
            # Its heap begins small and gives back what it does not need.
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms48m "
            f"-XX:MinHeapFreeRatio=15 -XX:MaxHeapFreeRatio=30 {logging}",
        }
        # A heap for every thread of the JVM, which the C library would make, is memory for nothing.
        os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Workers import what lies beside the user's program, as the program itself can.
    beside = os.path.dirname(os.path.abspath(sys.argv[0])) if sys.argv[0] else ""  # noqa: PTH100, PTH120
    known = os.environ.get("PYTHONPATH", "")
    if beside and beside in sys.path and beside not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [beside, known]))
    # Workers run this Python, with these packages, unless the user has named another; Spark reads it from here alone.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with quiet_start(), python_of(more):
            session: SparkSession = builder.getOrCreate()
    except Exception as error:
        hint = "Check that the master is reachable and that Java works: 'java -version'."
        raise SparkFailed(f"Spark did not start on '{master}': {error}.", hint=hint) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _forget() -> None:
    """Let pyspark start anew after its JVM was ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _authentication(master: str) -> dict[str, str]:
    """Authenticate and encrypt Spark's own connections; a standalone cluster must have been given the secret."""
    settings = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    if master.startswith("spark://"):
        secret = os.environ.get(SECRET_VARIABLE)
        if not secret and is_unauthenticated():
            return {}
        if not secret:
            raise SparkFailed(
                f"Spark's connections to {master} would not be authenticated, and the job's key travels through them.",
                hint=f"Start the cluster with spark.authenticate and a secret, and set {SECRET_VARIABLE} to it; "
                f"or, where nobody else reaches the network, set {UNAUTHENTICATED_VARIABLE}=1.",
            )
        settings["spark.authenticate.secret"] = secret
    return settings


def close_session() -> None:
    """Stop Spark when the last job of the process is over, unless the user had started it."""
    global _users, _own
    with _lock:
        _users -= 1
        if _users == 0 and _own is not None:
            _own.stop()
            _own = None


def failed_tasks(session: SparkSession, group: str) -> TasksFailed:
    """How many tasks of a job group have failed until now, and why one of them has."""
    count, error = failures(session, group)
    return TasksFailed(count, telling_line(error))


class Hosting:
    """The Spark jobs whose tasks are the workers: the first one for all, and one for each worker that is ordered again.

    Parameters
    ----------
    post : callable
        Takes what the driver is to know: that a Spark job has ended, that tasks fail, how many cores there are.
    is_starting : callable
        Whether the job has not started yet.
    """

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        assignment: Assignment,
        post: Callable[[HostEnded | OrderEnded | TasksFailed | CoresSeen], None],
        is_starting: Callable[[], bool],
    ) -> None:
        self._session = session
        self._plan = plan
        self._assignment = assignment
        self._post = post
        self._is_starting = is_starting
        self._group = f"penstock-{plan.options.name}-{id(self)}"
        self._threads: dict[int, threading.Thread] = {}
        """By order: who waits for its Spark job."""
        self._withdrawn: set[int] = set()
        self._over: set[int] = set()
        self._closed = threading.Event()

    def start(self) -> None:
        """Submit the job of all workers, and begin to look after it; returns at once."""
        self._submit(0, range(self._plan.workers))
        threading.Thread(target=self._watch, name="penstock-watch", daemon=True).start()

    def replace(self, command: Replace) -> None:
        """Start another task for a worker whose own does not answer, in a Spark job of its own; returns at once."""
        self._submit(command.order, range(command.worker, command.worker + 1))

    def withdraw(self, command: Withdraw) -> None:
        """End the Spark job of an order that nobody needs any more; returns at once."""
        self._withdrawn.add(command.order)
        context = self._session.sparkContext
        threading.Thread(
            target=context.cancelJobGroup, args=(self._group_of(command.order),), name="penstock-withdraw", daemon=True
        ).start()

    def _group_of(self, order: int) -> str:
        return f"{self._group}-{order}"

    def _submit(self, order: int, workers: range) -> None:
        thread = threading.Thread(target=self._run, args=(order, workers), name="penstock-spark", daemon=True)
        self._threads[order] = thread
        thread.start()

    def _run(self, order: int, workers: range) -> None:
        error: str | None = None
        try:
            self._host(order, workers)
        except Exception as failed:
            error = short_error(failed)
        if order in self._withdrawn:
            error = None
        elif order:
            self._post(OrderEnded(workers.start, order, error))
            error = None
        self._over.add(order)
        # The first job may end before the job of a task that took another's place.
        if error is not None or len(self._over) == len(self._threads):
            self._post(HostEnded(error))

    def _host(self, order: int, workers: range) -> None:
        from pyspark.cloudpickle import dumps

        # The plan travels as bytes that the worker opens itself, so that it can tell the driver why it cannot: a task
        # that fails before it speaks would only be started again and again.
        packed, assignment = dumps(self._plan), self._assignment

        def host(_: int, numbers: Iterator[int]) -> Iterator[None]:
            for worker in numbers:
                run_worker(packed, worker, assignment, order)
            yield None

        context = self._session.sparkContext
        context.setJobGroup(self._group_of(order), f"{self._plan.options.name}: workers", interruptOnCancel=True)
        # Plain tasks: a query would be planned, and compiled in a session that does so, before the first worker starts.
        tasks = context.parallelize(workers, len(workers)).mapPartitionsWithIndex(host)
        if order not in self._withdrawn:
            tasks.collect()

    def _watch(self) -> None:
        """Tell the driver when cores come or go, and, until the job has started, that tasks fail."""
        cores, failed = None, 0
        while not self._closed.is_set():
            starting = self._is_starting()
            try:
                seen = cores_of(self._session)
                found = failed_tasks(self._session, self._group_of(0)) if starting else None
            except Exception:  # Spark is ending, or cannot tell: whoever waits for its jobs hears why
                return
            if seen != cores:
                cores = seen
                self._post(CoresSeen(seen))
            if found is not None and found.count > failed:
                failed = found.count
                self._post(found)
            self._closed.wait(WATCH_S)

    @property
    def has_replaced(self) -> bool:
        """Whether there may be a task that does not answer, and does not end."""
        return len(self._threads) > 1

    def join(self, timeout_s: float) -> bool:
        """Wait for the tasks to end."""
        self._closed.set()
        return _joined(list(self._threads.values()), timeout_s)

    def cancel(self) -> None:
        """End the tasks from Spark's side."""
        for order in self._threads:
            self._session.sparkContext.cancelJobGroup(self._group_of(order))


class GroupJobs:
    """The Spark jobs whose tasks are the slots of groups."""

    def __init__(
        self, session: SparkSession, plan: Plan, assignment: Assignment, on_end: Callable[[int, str | None], None]
    ) -> None:
        from pyspark.cloudpickle import dumps

        self._session = session
        self._assignment = assignment
        self._on_end = on_end
        self._group = f"penstock-groups-{plan.options.name}-{id(self)}"
        self._job = plan.options.name
        self._packed = dumps(plan)
        self._threads: list[threading.Thread] = []

    def submit(self, command: Submit) -> None:
        """Submit the job of one group; returns at once."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=self._run, args=(command,), name="penstock-group", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, command: Submit) -> None:
        packed = self._packed
        task = GroupTask(command.group, command.micro_batches, self._assignment)

        def host(slot: int, _: Iterator[object]) -> Iterator[str | None]:
            yield run_slot(packed, slot, task)

        context = self._session.sparkContext
        try:
            told = f"{self._job}: slots for micro-batches, group {command.group}"
            if command.group < 0:
                told = f"{self._job}: {command.slots} replicas"
            context.setJobGroup(self._group, told, interruptOnCancel=True)
            tasks = context.parallelize(range(command.slots), command.slots).mapPartitionsWithIndex(host)
            unable = tasks.collect()
        except Exception as error:
            self._on_end(command.group, short_error(error))
        else:
            self._on_end(command.group, next(filter(None, unable), None))

    def join(self, timeout_s: float) -> bool:
        """Wait for the tasks to end."""
        return _joined(self._threads, timeout_s)

    def cancel(self) -> None:
        """End the tasks from Spark's side."""
        self._session.sparkContext.cancelJobGroup(self._group)


def _joined(threads: Sequence[threading.Thread], timeout_s: float) -> bool:
    deadline = monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))
    return not any(thread.is_alive() for thread in threads)


def short_error(error: Exception) -> str:
    """The line of a Spark error that says what happened."""
    return telling_line(str(error)) or type(error).__name__


def telling_line(text: str) -> str:
    """The line of a long text of Spark's that says what happened, and what to set where it is about Python."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A Python exception's last line, rather than one of the JVM's frames or a line of somebody's source.
    telling = [line for line in lines if re.match(r"([\w.]+\.)?\w*(Error|Exception|Exit|Interrupt)\b:", line)]
    telling = telling or [line for line in lines if "crashed" in line]
    found = (telling or lines or [""])[-1].rstrip(".")[:500]
    if any(sign in text for sign in _OTHER_PYTHON):
        found += f". The workers' Python is not this one ({sys.executable}), or lacks packages that this one has: "
        found += "set the variable PYSPARK_PYTHON to one that has them, on every machine, before Spark starts"
    return found
