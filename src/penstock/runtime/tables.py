"""Tables that Spark loads: the driver gathers their rows into files, workers and slots map them.

`TableService` lives in the driver. Tasks of a Spark job bring the rows straight to it. It writes them into a file of a
new version, names that in ``<table>-current``, and removes older ones; a file that is mapped stays with those who have
it. A process that sees the driver's directory maps the files there. On other machines the first
process that needs a version fetches it, and the others map the same copy.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from penstock.connectors.mapped import use_tables, write_table
from penstock.connectors.secrets import one_line
from penstock.errors import PenstockError
from penstock.operators import Lookup
from penstock.operators.base import Step
from penstock.pipeline.plan import Plan
from penstock.protocol.queries import Ask, Piece, decode
from penstock.runtime.addresses import Address
from penstock.runtime.queries import ARRIVE_S, FAILURES_MAX, TURN_US, WATCH_S, QueryAssignment, bringing
from penstock.runtime.scratch import ScratchClient, ScratchServer
from penstock.runtime.transport import Keys, Node
from penstock.spark.sessions import hosts_workers, query_session
from penstock.spark.tables import SparkTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("penstock.tables")
_KEPT_VERSIONS = 2
"""Whoever has read the name of one may still be on the way to map it."""
_PREFIX = "penstock-tables-"
_LOCK = "lock"


class TableAssignment(msgspec.Struct, frozen=True):
    """Where a process finds the tables."""

    directory: str
    server: str
    """Who answers on machines that do not see the directory; empty: there are none."""
    keys: Keys


def tables_of(plan: Plan) -> list[SparkTable]:
    """The tables of a plan that Spark loads, those of alternatives too."""
    found = {each.identity: each for unit in plan.units for op in unit.ops for each in _tables(op.operation)}
    return list(found.values())


def _tables(operation: Step) -> Iterator[SparkTable]:
    if isinstance(operation, Lookup) and isinstance(operation.table, SparkTable):
        yield operation.table
    elif operation.choice is not None:
        for each in operation.choice.alternatives:
            for step in each.steps:
                yield from _tables(step.operation)


class TableService:
    """Loads the tables of a job, and again as often as they say.

    Parameters
    ----------
    host : str
        Where the driver listens.
    own_host : str
        Where the tasks of Spark jobs listen; empty: at their machine's address towards the driver.
    """

    def __init__(
        self, session: SparkSession, tables: list[SparkTable], keys: Keys, host: str | Address, own_host: str
    ) -> None:
        self._session = query_session(session) if hosts_workers(session) else session
        self._tables = tables
        self._keys, self._host, self._own_host = keys, host, own_host
        self._directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._versions = {each.identity: 0 for each in tables}
        self._server: ScratchServer | None = None
        self._closed = threading.Event()
        try:
            for each in tables:
                self.load(each)
        except BaseException:
            self.close()
            raise
        if not session.sparkContext.master.startswith("local"):
            self._server = ScratchServer(keys, host, self._directory)
        endpoint = self._server.endpoint if self._server is not None else ""
        self.assignment = TableAssignment(str(self._directory), endpoint, keys)
        if any(each.refresh_us is not None for each in tables):
            threading.Thread(target=self._refresh, name="penstock-tables", daemon=True).start()

    def load(self, table: SparkTable) -> None:
        """Have Spark gather the rows of a table, and make them the newest version."""
        identity = table.identity
        try:
            batches = self._gathered(table)
        except PenstockError:
            raise
        except Exception as error:
            from penstock.runtime.spark import short_error  # which knows how workers are hosted, and they know this

            raise table.failed(short_error(error)) from error
        if self._closed.is_set():
            return
        version = self._versions[identity] + 1
        name = f"{identity}-{version:06d}"
        write_table(self._directory / name, batches, table.schema, table.key)
        named = self._directory / f"{identity}-named-{version:06d}"
        named.write_text(name)
        named.replace(self._directory / f"{identity}-current")
        self._versions[identity] = version
        (self._directory / f"{identity}-{version - _KEPT_VERSIONS:06d}").unlink(missing_ok=True)

    def _gathered(self, table: SparkTable) -> list[pa.RecordBatch]:
        session = table.session(self._session)
        frame = table.frame(session)
        node = Node(self._keys, self._host)
        request = int.from_bytes(os.urandom(6), "big")
        ask = Ask(request=request, operation="", endpoint=node.endpoint, count=0)
        assignment = QueryAssignment(node.endpoint, self._keys, self._own_host)
        group = f"penstock-table-{request}"

        def run() -> dict[int, int]:
            session.sparkContext.setJobGroup(group, f"load {table.describe()}", interruptOnCancel=True)
            rows = frame.mapInArrow(bringing(ask, assignment, table.schema), "task long, pieces long").collect()
            return {row.task: row.pieces for row in rows}

        with ThreadPoolExecutor(1, "penstock-table-job") as jobs:
            job = jobs.submit(run)
            try:
                return _received(node, job, table, lambda: self._check(session, group, table))
            finally:
                if not job.done():
                    session.sparkContext.cancelJobGroup(group)
                node.close(linger_ms=0)

    def _check(self, session: Any, group: str, table: SparkTable) -> None:
        """Raise what makes it useless to wait for a job: Spark itself would try its tasks for ever."""
        from penstock.runtime.spark import failed_tasks

        if self._closed.is_set():
            raise table.failed("the job has ended")
        found = failed_tasks(session, group)
        if found.count >= FAILURES_MAX:
            raise table.failed(found.error)

    def _refresh(self) -> None:
        due_s = {each.identity: monotonic() + each.refresh_us / 1e6 for each in self._tables if each.refresh_us}
        while not self._closed.wait(max(0.0, min(due_s.values()) - monotonic())):
            for table in self._tables:
                if not table.refresh_us or due_s[table.identity] > monotonic():
                    continue
                try:
                    self.load(table)
                except Exception as error:
                    if not self._closed.is_set():
                        what = "the table of %s could not be loaded again, its rows stay as they were: %s"
                        _log.warning(what, table.describe(), one_line(error))
                due_s[table.identity] = monotonic() + table.refresh_us / 1e6

    def close(self) -> None:
        """Load nothing more, and remove the files."""
        self._closed.set()
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _received(
    node: Node, job: Future[dict[int, int]], table: SparkTable, check: Callable[[], None]
) -> list[pa.RecordBatch]:
    """What the tasks of a job bring, once the job has said which of them count."""
    pieces: dict[tuple[int, int], bytes] = {}
    size_bytes, checked_s, deadline_s = 0, monotonic(), inf
    while monotonic() < deadline_s:
        for frames in node.receive():
            message = decode(frames[1])
            if isinstance(message, Piece):
                pieces[message.task, message.number] = frames[2]
                size_bytes += len(frames[2])
        if size_bytes > table.limit_bytes:
            raise table.too_large(size_bytes)
        if job.done():
            wanted = [(task, number) for task, count in sorted(job.result().items()) for number in range(count)]
            if all(each in pieces for each in wanted):
                arrow = table.schema.arrow
                return [pa.ipc.read_record_batch(pa.py_buffer(pieces[each]), arrow) for each in wanted]
            deadline_s = min(deadline_s, monotonic() + ARRIVE_S)
        elif monotonic() - checked_s >= WATCH_S:
            check()
            checked_s = monotonic()
        node.wait(TURN_US)
    raise table.failed("a part of the rows was lost on the way")


def open_tables(
    session: SparkSession, plan: Plan, keys: Keys, host: str | Address, own_host: str
) -> TableService | None:
    """Load the tables of a plan that are Spark's, if it has some."""
    tables = tables_of(plan)
    return TableService(session, tables, keys, host, own_host) if tables else None


def offer_tables(assignment: TableAssignment | None) -> None:
    """Let the lookups of this process find the tables."""
    if assignment is None:
        return
    directory = Path(assignment.directory)
    if directory.is_dir():
        use_tables(lambda identity: str(directory / (directory / f"{identity}-current").read_text()))
    elif assignment.server:
        use_tables(Copies(assignment).newest)


class Copies:
    """Files of the driver's, fetched once for all processes of this machine.

    They are removed by the next job that is started here after the last of those processes is gone.
    """

    def __init__(self, assignment: TableAssignment) -> None:
        self._client = ScratchClient(assignment.keys, assignment.server)
        root = Path(tempfile.gettempdir())
        self._directory = root / f"{_PREFIX}{sha256(assignment.keys.public).hexdigest()[:32]}"
        for other in root.glob(f"{_PREFIX}*/{_LOCK}"):
            _remove_unused(other)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._held = (self._directory / _LOCK).open("a")
        fcntl.flock(self._held, fcntl.LOCK_SH)

    def newest(self, identity: str) -> str:
        """The path of the newest version of a table, here."""
        told = self._directory / f"{identity}-told-{os.getpid()}"
        self._client.fetch(f"{identity}-current", told)
        path = self._directory / told.read_text()
        told.unlink()
        if not path.exists():
            with (self._directory / f"{identity}-fetch").open("a") as alone:
                fcntl.flock(alone, fcntl.LOCK_EX)
                if not path.exists():
                    self._fetch(path)
        return str(path)

    def _fetch(self, path: Path) -> None:
        unfinished = path.with_name(f"{path.name}-unfinished")
        self._client.fetch(path.name, unfinished)
        unfinished.replace(path)
        identity, _, version = path.name.rpartition("-")
        for other in path.parent.glob(f"{identity}-[0-9]*"):
            number = other.name.rpartition("-")[2]
            if number.isdigit() and int(number) <= int(version) - _KEPT_VERSIONS:
                other.unlink(missing_ok=True)


def _remove_unused(lock: Path) -> None:
    try:
        with lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
    except OSError:
        pass  # some process uses them
