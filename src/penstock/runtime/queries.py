"""The query service: runs the Spark SQL jobs of `transform`, and moves rows straight between its askers and the tasks.

`QueryService` lives in the driver, `ask` in slots and workers, `fetched` and `brought` in the tasks of the SQL jobs.
"""

from __future__ import annotations

import os
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from penstock.errors import PenstockError, TypeMismatch
from penstock.operators.stateless.transform import Transform, use_service
from penstock.pipeline.plan import OpSpec, Plan
from penstock.protocol.link import Kind
from penstock.protocol.queries import Answer, Ask, Brought, Fetch, Piece, QueryMessage, Rows, decode, encode
from penstock.runtime.addresses import Address
from penstock.runtime.gathered import Gathered
from penstock.runtime.prepared import Key, Prepared, Queries, can_be_kept, numbered
from penstock.runtime.transport import Keys, Node
from penstock.spark.sessions import hosts_workers, small_query_session
from penstock.spark.sources import checked
from penstock.spark.types import ours, spark_schema
from penstock.types import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_FLIGHT_MAX = 8
"""SQL jobs side by side."""
PART_RECORDS = 20_000
PIECE_BYTES = 4 << 20
FAILURES_MAX = 4
"""Lost tasks of one SQL job that end it, as they do in Spark unless it is told otherwise."""
WATCH_S = 0.5
WAIT_S = 120.0
"""So long an asker waits for an answer."""
FETCH_S = 20.0
"""So long a task waits for the rows of an asker that may be gone."""
ARRIVE_S = 5.0
"""So long after the answer, every piece that it names has arrived."""
AGAIN_S = 0.3
"""So often a message is repeated that has not been answered."""
ANSWERS_MAX = 1_000
"""Answers that are kept, for askers who have not heard them."""
TURN_US = 50_000
ASKER_TURN_US = 5_000
"""So often an asker that waits looks up."""
READY_S = 20.0
"""So long the job waits for its queries to be planned, and to have run once, at the most."""
CLOSE_S = 5.0
"""So long the end of the job waits for the end of its queries, at the most."""
CANCEL_S = 0.02
WARM_RUNS = 5
"""So often queries run on nothing while workers start, unless a micro-batch comes first: the JVM compiles meanwhile."""
ASK = "penstock.ask"
"""The property of a Spark job that says which micro-batch it is for."""


class QueryAssignment(msgspec.Struct, frozen=True):
    """How to reach the service, and each other."""

    service: str
    keys: Keys
    host: str
    ports: tuple[int, int] = (0, 0)


def transforms(plan: Plan) -> dict[str, OpSpec]:
    """The operations of a plan that need the service, by the name that users know."""
    return {op.display: op for unit in plan.units for op in unit.ops if isinstance(op.operation, Transform)}


class QueryService:
    """Runs the SQL jobs of a pipeline's transformations.

    Parameters
    ----------
    host : str
        Where tasks and slots listen; empty: at their machine's address towards the driver.
    """

    def __init__(
        self,
        session: SparkSession,
        operations: Mapping[str, OpSpec],
        keys: Keys,
        own_host: str | Address,
        host: str,
    ) -> None:
        self._session = session
        beside = small_query_session(session)
        self._operations = dict(operations)
        self._is_own = hosts_workers(session)
        self._sessions = {name: self._fitting(name, op, beside) for name, op in self._operations.items()}
        """By operation: where its queries are made."""
        self._passing: set[str] = set()
        """Operations whose queries are made anew for each micro-batch."""
        self._node = Node(keys, own_host)
        ports = own_host.ports if isinstance(own_host, Address) else (0, 0)
        self.assignment = QueryAssignment(self._node.endpoint, keys, host, ports)
        self._jobs = ThreadPoolExecutor(IN_FLIGHT_MAX, "penstock-query")
        self._answers: list[tuple[str, Answer]] = []
        self._running: dict[str, None] = {}
        self._causes: dict[str, str] = {}
        self._known: dict[int, Answer | None] = {}
        """By request, the oldest first: the answer, once there is one."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._queries = Queries(self._made, self._warm_up)
        self._thread = threading.Thread(target=self._serve, name="penstock-queries", daemon=True)
        self._thread.start()
        # The job begins after that, so its first records find queries that are planned.
        wait([self._jobs.submit(self._get_ready, name) for name in self._operations], READY_S)
        for name in self._operations:
            self._jobs.submit(self._keep_warm, name)

    def _get_ready(self, name: str) -> None:
        key = name, 1
        if not can_be_kept(self._made(key)):
            self._passing.add(name)
            if not self._is_own:
                self._sessions[name] = self._session  # a query with a shuffle has the partitions that the user wants
        self._warm_up(key, self._queries.take(key))

    def _keep_warm(self, name: str) -> None:
        key = name, 1
        for _ in range(WARM_RUNS):
            if self._known or self._closed.is_set():
                return
            self._warm_up(key, self._queries.take(key))

    def _made(self, key: Key) -> Any:
        (name, parts), assignment = key, self.assignment
        op = self._operations[name]
        numbers = numbered(self._sessions[name], parts, is_large=name not in self._passing)
        rows = numbers.mapInArrow(_fetching(parts, assignment, op.schema), spark_schema(op.schema))
        result = _applied(name, op, rows)
        return result.mapInArrow(bringing(None, assignment, op.output), "task long, pieces long")

    def _warm_up(self, key: Key, query: Prepared) -> None:
        context, group = self._session.sparkContext, f"penstock-query-warm-up-{os.urandom(4).hex()}"
        context.setJobGroup(group, f"{key[0]}: warm-up", interruptOnCancel=True)
        context.setLocalProperty(ASK, None)
        with self._lock:
            self._running[group] = None
        try:
            query.run()
        finally:
            with self._lock:
                del self._running[group]
                self._causes.pop(group, None)

    def _fitting(self, name: str, op: OpSpec, beside: Any) -> Any:
        """Apply the function to nothing: before a record is read, its columns are known to fit.

        One that needs the user's session itself, such as one that names a view in SQL, has that.
        """
        try:
            _applied(name, op, beside.createDataFrame([], spark_schema(op.schema)))
        except Exception:
            if self._is_own:
                raise
            _applied(name, op, self._session.createDataFrame([], spark_schema(op.schema)))
            return self._session
        return beside

    def _serve(self) -> None:
        watched_s = monotonic()
        while not self._closed.is_set():
            for frames in self._node.receive():
                message = decode(frames[1])
                if isinstance(message, Ask):
                    self._take(message)
            with self._lock:
                answers, self._answers = self._answers, []
                running = list(self._running)
            for endpoint, answer in answers:
                self._known[answer.request] = answer
                _send(self._node, endpoint, answer)
            if monotonic() - watched_s >= WATCH_S:
                self._end_hopeless(running)
                watched_s = monotonic()
            self._node.wait(ASKER_TURN_US if running else TURN_US)

    def _take(self, ask: Ask) -> None:
        """Begin a job, once for each request; who has not heard the answer hears it again."""
        if ask.request in self._known:
            answer = self._known[ask.request]
            if answer is not None:
                _send(self._node, ask.endpoint, answer)
            return
        self._known[ask.request] = None
        if len(self._known) > ANSWERS_MAX:
            del self._known[next(iter(self._known))]
        self._jobs.submit(self._run, ask)

    def _end_hopeless(self, running: list[str]) -> None:
        for group in running:
            from penstock.runtime.spark import failed_tasks  # which knows how workers are hosted, and they know this

            found = failed_tasks(self._session, group)
            if found.count >= FAILURES_MAX:
                with self._lock:
                    self._causes[group] = found.error
                self._session.sparkContext.cancelJobGroup(group)

    def _run(self, ask: Ask) -> None:
        group = f"penstock-query-{ask.request}"
        with self._lock:
            self._running[group] = None
        try:
            answer = self._job(ask, group)
        except Exception as error:
            from penstock.runtime.spark import short_error

            with self._lock:
                cause = self._causes.pop(group, "")
            answer = Answer(request=ask.request, pieces={}, error=cause or short_error(error))
        with self._lock:
            del self._running[group]
            self._answers.append((ask.endpoint, answer))

    def _job(self, ask: Ask, group: str) -> Answer:
        # Few different numbers of parts: each has a query of its own.
        key = ask.operation, 1 << (ask.count // PART_RECORDS).bit_length()
        context = self._session.sparkContext
        context.setJobGroup(group, f"{ask.operation}: {ask.count} records", interruptOnCancel=True)
        query = self._queries.take(key)
        ask.outputs = query.outputs
        context.setLocalProperty(ASK, b64encode(encode(ask)).decode())
        try:
            return Answer(request=ask.request, pieces=query.run(), outputs=query.outputs)
        except BaseException:
            self._queries.drop(key, query)
            raise

    def close(self) -> None:
        """End the jobs that are under way, and those that are about to be: Spark cancels what it knows of, no more."""
        self._closed.set()
        self._thread.join()
        self._jobs.shutdown(wait=False, cancel_futures=True)
        until_s = monotonic() + CLOSE_S
        while (running := self._under_way()) and monotonic() < until_s:
            for group in running:
                self._session.sparkContext.cancelJobGroup(group)
            threading.Event().wait(CANCEL_S)
        self._queries.close()
        self._node.close(linger_ms=0)

    def _under_way(self) -> list[str]:
        with self._lock:
            return list(self._running)


def open_service(
    session: SparkSession, plan: Plan, keys: Keys, host: str | Address, own_host: str
) -> QueryService | None:
    """Start the service, if some operation needs it; the driver listens at ``host``, the others at ``own_host``."""
    operations = transforms(plan)
    return QueryService(session, operations, keys, host, own_host) if operations else None


def _applied(name: str, op: OpSpec, df: Any) -> Any:
    assert isinstance(op.operation, Transform)
    result = op.operation.function(df)
    if not hasattr(result, "mapInArrow"):
        raise TypeMismatch(what=f"the function returned {type(result).__name__}, not a DataFrame.", operation=name)
    return checked(name, op.output, result)


def _asked() -> Ask | None:
    """What the job of this task is for, if it is for a micro-batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    packed = context.getLocalProperty(ASK) if context is not None else None
    ask = decode(b64decode(packed)) if packed else None
    assert ask is None or isinstance(ask, Ask)
    return ask


def _fetching(
    parts: int, assignment: QueryAssignment, schema: Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ask = _asked()
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield schema.to_batch([]) if ask is None else _fetched(ask, part, parts, assignment, schema)

    return fetch


def bringing(
    ask: Ask | None, assignment: QueryAssignment, schema: Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What the last stage of a job does: brings the rows to who has asked, and says how many pieces they are.

    Who that is says the job, where it is not given.
    """

    def bring(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        to, context, number = ask or _asked(), TaskContext.get(), 0
        assert context is not None
        task = int(context.taskAttemptId())
        node = _node(assignment)
        for batch in batches:
            if to is None:
                continue
            for payload in _packed(ours(batch, schema)):
                _send(node, to.endpoint, Piece(request=to.request, task=task, number=number), payload)
                number += 1
        if to is not None and to.outputs:
            part = int(context.partitionId())
            _send(
                node, to.endpoint, Brought(request=to.request, task=task, part=part, pieces=number, outputs=to.outputs)
            )
        yield pa.RecordBatch.from_pydict({"task": [task], "pieces": [number]})

    return bring


def _packed(batch: pa.RecordBatch) -> Iterator[bytes]:
    """A batch in pieces that any inbox takes."""
    if not batch.num_rows:
        return
    pieces = 1 + batch.nbytes // PIECE_BYTES
    step = -(-batch.num_rows // pieces)
    for at in range(0, batch.num_rows, step):
        yield batch.slice(at, step).serialize().to_pybytes()


def _fetched(ask: Ask, part: int, parts: int, assignment: QueryAssignment, schema: Schema) -> pa.RecordBatch:
    node = _node(assignment)
    wanted = Fetch(request=ask.request, endpoint=node.endpoint, part=part, parts=parts)
    deadline_s, next_s = monotonic() + FETCH_S, 0.0
    while monotonic() < deadline_s:
        if monotonic() >= next_s:
            _send(node, ask.endpoint, wanted)
            next_s = monotonic() + AGAIN_S
        for frames in node.receive():
            message = decode(frames[1])
            if isinstance(message, Rows) and (message.request, message.part) == (ask.request, part):
                return pa.ipc.read_record_batch(pa.py_buffer(frames[2]), schema.arrow)
        node.wait(TURN_US)
    raise TimeoutError("who asked for the transformation does not answer")


_nodes: dict[bytes, Node] = {}
"""Of this process, by the job's key: a task keeps it for the next one."""


def _node(assignment: QueryAssignment) -> Node:
    from penstock.runtime.host import own_address

    key = assignment.keys.public
    if key not in _nodes:
        for other in list(_nodes):
            _nodes.pop(other).close(linger_ms=0)
        host = assignment.host or own_address(assignment.service)
        _nodes[key] = Node(assignment.keys, Address(host, ports=assignment.ports))
    return _nodes[key]


def _send(node: Node, endpoint: str, message: QueryMessage, *payload: bytes) -> None:
    node.connect(endpoint)
    node.send(endpoint, Kind.QUERY, [encode(message), *payload])


def offer_service(assignment: QueryAssignment | None, plan: Plan) -> None:
    """Let the transformations of this process reach the service."""
    if assignment is None:
        return
    outputs = {name: op.output for name, op in transforms(plan).items()}
    use_service(lambda operation, batch: asking(assignment, operation, batch, outputs[operation]))


def asking(
    assignment: QueryAssignment, operation: str, batch: pa.RecordBatch, output: Schema
) -> Iterator[pa.RecordBatch | None]:
    """Have a batch transformed: gives None every few milliseconds until the result is there."""
    node = _node(assignment)
    request = int.from_bytes(os.urandom(6), "big")
    ask = Ask(request=request, operation=operation, endpoint=node.endpoint, count=batch.num_rows)
    gathered = Gathered()
    deadline_s, next_s = monotonic() + WAIT_S, 0.0
    while monotonic() < deadline_s:
        if not gathered.answered and monotonic() >= next_s:
            _send(node, assignment.service, ask)
            next_s = monotonic() + AGAIN_S
        for frames in node.receive():
            message = decode(frames[1])
            if message.request != request:
                continue  # of a job that was asked for before, by who had this process then
            if isinstance(message, Fetch):
                _send_rows(node, message, batch)
            elif isinstance(message, Piece | Brought | Answer):
                gathered.take(message, frames[2:])
                if isinstance(message, Answer):
                    deadline_s = monotonic() + ARRIVE_S
        if (pieces := gathered.whole()) is not None:
            made = [pa.ipc.read_record_batch(pa.py_buffer(piece), output.arrow) for piece in pieces]
            yield pa.concat_batches(made) if made else output.to_batch([])
            return
        node.wait(ASKER_TURN_US)
        yield None
    if not gathered.answered:
        raise PenstockError(
            f"Spark has not answered for {WAIT_S:.0f} s.", operation=operation, hint="Has it a core for the query?"
        )
    yield from asking(assignment, operation, batch, output)  # a piece was lost on the way


def _send_rows(node: Node, fetch: Fetch, batch: pa.RecordBatch) -> None:
    step = -(-batch.num_rows // fetch.parts)
    rows = batch.slice(fetch.part * step, step)
    _send(node, fetch.endpoint, Rows(request=fetch.request, part=fetch.part), rows.serialize().to_pybytes())
