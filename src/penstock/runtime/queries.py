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
from penstock.protocol.queries import Answer, Ask, Fetch, Piece, QueryMessage, Rows, decode, encode
from penstock.runtime.prepared import Key, Queries
from penstock.runtime.transport import Keys, Node
from penstock.spark.sessions import hosts_workers, query_session
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
READY = 2
"""Queries of each operation that are planned before a job begins."""
READY_S = 20.0
"""So long the job waits for that at the most."""
ASK = "penstock.ask"
"""The property of a Spark job that says which micro-batch it is for."""


class QueryAssignment(msgspec.Struct, frozen=True):
    """How to reach the service, and each other."""

    service: str
    keys: Keys
    host: str


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
        own_host: str,
        host: str,
    ) -> None:
        self._session = _for_small_batches(session) if hosts_workers(session) else session
        self._operations = dict(operations)
        for name, op in self._operations.items():
            self._check(name, op)
        self._node = Node(keys, own_host)
        self.assignment = QueryAssignment(self._node.endpoint, keys, host)
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

    def _get_ready(self, name: str) -> None:
        key = name, 1
        ready = [self._queries.warm(key)]
        if ready[0].is_kept:
            ready += [self._queries.warm(key) for _ in range(READY - 1)]
        for each in ready:
            self._queries.give(key, each)

    def _made(self, key: Key) -> Any:
        (name, parts), assignment = key, self.assignment
        op = self._operations[name]
        numbers = self._session.range(0, parts, 1, parts)
        rows = numbers.mapInArrow(_fetching(parts, assignment, op.schema), spark_schema(op.schema))
        result = _applied(name, op, rows)
        return result.mapInArrow(bringing(None, assignment, op.output), "task long, pieces long")

    def _warm_up(self, key: Key, frame: Any) -> None:
        context, group = self._session.sparkContext, f"penstock-query-warm-up-{os.urandom(4).hex()}"
        context.setJobGroup(group, f"{key[0]}: warm-up", interruptOnCancel=True)
        context.setLocalProperty(ASK, None)
        with self._lock:
            self._running[group] = None
        try:
            frame.collect()
        finally:
            with self._lock:
                del self._running[group]
                self._causes.pop(group, None)

    def _check(self, name: str, op: OpSpec) -> None:
        """Apply the function to nothing: before a record is read, its columns are known to fit."""
        empty = self._session.createDataFrame([], spark_schema(op.schema))
        _applied(name, op, empty)

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
            self._node.wait(2_000 if running else TURN_US)

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
            answer = Answer(request=ask.request, pieces=self._job(ask, group))
        except Exception as error:
            from penstock.runtime.spark import short_error

            with self._lock:
                cause = self._causes.pop(group, "")
            answer = Answer(request=ask.request, pieces={}, error=cause or short_error(error))
        with self._lock:
            del self._running[group]
            self._answers.append((ask.endpoint, answer))

    def _job(self, ask: Ask, group: str) -> dict[int, int]:
        key = ask.operation, 1 + ask.count // PART_RECORDS
        query = self._queries.take(key)
        context = self._session.sparkContext
        context.setJobGroup(group, f"{ask.operation}: {ask.count} records", interruptOnCancel=True)
        context.setLocalProperty(ASK, b64encode(encode(ask)).decode())
        sent = query.frame.collect()
        self._queries.give(key, query)  # one that has failed is not run again
        return {row.task: row.pieces for row in sent}

    def close(self) -> None:
        """End the jobs that are under way."""
        with self._lock:
            running = list(self._running)
        for group in running:
            self._session.sparkContext.cancelJobGroup(group)
        self._closed.set()
        self._thread.join()
        self._jobs.shutdown(wait=False, cancel_futures=True)
        self._queries.close()
        self._node.close(linger_ms=0)


def open_service(session: SparkSession, plan: Plan, keys: Keys, host: str, own_host: str) -> QueryService | None:
    """Start the service, if some operation needs it; the driver listens at ``host``, the others at ``own_host``."""
    operations = transforms(plan)
    return QueryService(session, operations, keys, host, own_host) if operations else None


def _for_small_batches(session: SparkSession) -> Any:
    beside = query_session(session)
    # For so few rows a plan is compiled, or made anew from what was seen, longer than it runs.
    beside.conf.set("spark.sql.adaptive.enabled", "false")
    beside.conf.set("spark.sql.codegen.wholeStage", "false")
    beside.conf.set("spark.sql.shuffle.partitions", "2")
    return beside


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
        _nodes[key] = Node(assignment.keys, assignment.host or own_address(assignment.service))
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
    pieces: dict[tuple[int, int], bytes] = {}
    answer: Answer | None = None
    deadline_s, next_s = monotonic() + WAIT_S, 0.0
    while monotonic() < deadline_s:
        if answer is None and monotonic() >= next_s:
            _send(node, assignment.service, ask)
            next_s = monotonic() + AGAIN_S
        for frames in node.receive():
            message = decode(frames[1])
            if message.request != request:
                continue  # of a job that was asked for before, by who had this process then
            if isinstance(message, Fetch):
                _send_rows(node, message, batch)
            elif isinstance(message, Piece):
                pieces[message.task, message.number] = frames[2]
            elif isinstance(message, Answer):
                answer, deadline_s = message, monotonic() + ARRIVE_S
        if answer is not None:
            if answer.error:
                raise RuntimeError(answer.error)
            wanted = [(task, number) for task, count in sorted(answer.pieces.items()) for number in range(count)]
            if all(each in pieces for each in wanted):
                made = [pa.ipc.read_record_batch(pa.py_buffer(pieces[each]), output.arrow) for each in wanted]
                yield pa.concat_batches(made) if made else output.to_batch([])
                return
        node.wait(ASKER_TURN_US)
        yield None
    if answer is None:
        raise PenstockError(
            f"Spark has not answered for {WAIT_S:.0f} s.", operation=operation, hint="Has it a core for the query?"
        )
    yield from asking(assignment, operation, batch, output)  # a piece was lost on the way


def _send_rows(node: Node, fetch: Fetch, batch: pa.RecordBatch) -> None:
    step = -(-batch.num_rows // fetch.parts)
    rows = batch.slice(fetch.part * step, step)
    _send(node, fetch.endpoint, Rows(request=fetch.request, part=fetch.part), rows.serialize().to_pybytes())
