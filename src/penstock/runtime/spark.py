"""Spark as the host of the workers: one session per process, one long-running task per worker."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.control.groups import Submit
from penstock.errors import SparkFailed
from penstock.pipeline.plan import Plan
from penstock.runtime.host import Assignment, run_worker
from penstock.runtime.interrupts import ending_interrupts
from penstock.runtime.java import check_java, end_jvm
from penstock.runtime.quiet import quiet_start
from penstock.runtime.slots import GroupTask, run_slot
from penstock.runtime.transport import LOOPBACK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET_VARIABLE = "PENSTOCK_SPARK_SECRET"
LOCAL_SLOTS_MIN = 32
TASK_FAILURES_MAX = 10_000
"""Spark starts a lost worker's task again; how often in vain is for the scheduler to judge."""

_lock = threading.Lock()
_users = 0
_own: SparkSession | None = None


def open_session(master: str, workers: int, name: str) -> SparkSession:
    """Return the process's Spark session, starting one if there is none; pair with `close_session`."""
    global _users, _own
    from pyspark.sql import SparkSession

    with _lock:
        session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
        if session is None or session.sparkContext._jsc is None:
            try:
                # In a thread of its own: in the main one, pyspark would take Ctrl-C over.
                with ending_interrupts(end_jvm), ThreadPoolExecutor(1) as beside:
                    check_java()
                    session = beside.submit(_start, SparkSession.builder, master, workers, name).result()
            except KeyboardInterrupt:
                end_jvm()
                _forget()
                raise
            _own = session
        _users += 1
        return session


def _start(builder: Any, master: str, workers: int, name: str) -> SparkSession:
    settings = {
        "spark.app.name": f"penstock-{name}",
        **_authentication(master),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.task.maxFailures": str(TASK_FAILURES_MAX),
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "penstock.runtime.daemon",
        # Workers are hosted by a query, slots by tasks of a job. Both are forked from one daemon, and share its memory,
        # only if Spark gives both the same environment; with this setting it does.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    }
    if master.startswith("local"):
        # Slots are only threads here: enough for this job's workers, and for jobs that come after it in this process.
        master = f"local[{max(2 * workers, LOCAL_SLOTS_MIN)},{TASK_FAILURES_MAX}]" if master == "local" else master
        logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        settings |= {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            # The one query there is hosts the workers: nothing to optimise, nothing to compile.
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
        with quiet_start():
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
        if not secret:
            warnings.warn(
                f"Spark's connections to {master} are not authenticated. "
                f"Start the cluster with spark.authenticate and a secret, and set {SECRET_VARIABLE} to it.",
                stacklevel=2,
            )
            return {}
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


class Hosting:
    """The Spark job whose tasks are the workers."""

    def __init__(
        self, session: SparkSession, plan: Plan, assignment: Assignment, on_end: Callable[[str | None], None]
    ) -> None:
        self._session = session
        self._plan = plan
        self._assignment = assignment
        self._on_end = on_end
        self._group = f"penstock-{plan.options.name}-{id(self)}"
        self._threads: list[threading.Thread] = []
        self._ended: list[range] = []

    def start(self) -> None:
        """Submit the job; returns at once."""
        self._submit(range(self._plan.workers))

    def replace(self, worker: int) -> None:
        """Start another task for a worker whose own does not answer, in a Spark job of its own."""
        self._submit(range(worker, worker + 1))

    def _submit(self, workers: range) -> None:
        thread = threading.Thread(target=self._run, args=(workers,), name="penstock-spark", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, workers: range) -> None:
        from pyspark.cloudpickle import dumps

        # The plan travels as bytes that the worker opens itself, so that it can tell the driver why it cannot: a task
        # that fails before it speaks would only be started again and again.
        packed, assignment = dumps(self._plan), self._assignment

        def host(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for worker in batch.column(0).to_pylist():
                    run_worker(packed, worker, assignment)
                yield batch

        try:
            self._session.sparkContext.setJobGroup(self._group, "penstock workers", interruptOnCancel=True)
            slots = self._session.range(workers.start, workers.stop, 1, len(workers))
            slots.mapInArrow(host, "id long").collect()
        except Exception as error:
            self._on_end(_short(error))
        else:
            # The first job may end before the job of a task that took another's place.
            self._ended.append(workers)
            if len(self._ended) == len(self._threads):
                self._on_end(None)

    @property
    def has_replaced(self) -> bool:
        """Whether there may be a task that does not answer, and does not end."""
        return len(self._threads) > 1

    def join(self, timeout_s: float) -> bool:
        """Wait for the tasks to end."""
        deadline = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def cancel(self) -> None:
        """End the tasks from Spark's side."""
        self._session.sparkContext.cancelJobGroup(self._group)


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
            context.setJobGroup(self._group, "penstock micro-batches", interruptOnCancel=True)
            tasks = context.parallelize(range(command.slots), command.slots).mapPartitionsWithIndex(host)
            unable = tasks.collect()
        except Exception as error:
            self._on_end(command.group, _short(error))
        else:
            self._on_end(command.group, next(filter(None, unable), None))

    def join(self, timeout_s: float) -> bool:
        """Wait for the tasks to end."""
        deadline = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def cancel(self) -> None:
        """End the tasks from Spark's side."""
        self._session.sparkContext.cancelJobGroup(self._group)


def _short(error: Exception) -> str:
    """The line of a Spark error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A Python exception's last line, rather than one of the JVM's frames or a line of somebody's source.
    telling = [line for line in lines if re.match(r"([\w.]+\.)?\w*(Error|Exception|Exit|Interrupt)\b:", line)]
    telling = telling or [line for line in lines if "crashed" in line]
    return (telling or lines or [type(error).__name__])[-1].rstrip(".")[:500]
