"""The workloads on Bytewax: started as ``python -m bytewax.run programs.run_bytewax:flow`` in its own environment.

Lines come over a socket and rows go into the log, or both are topics, with its own connector. Bytewax has no watermark:
in files with windows and joins time is sent along with the messages. Every sender tells all the instances of the next
step how far its messages have come, behind the messages themselves; an instance goes by the one that is furthest
behind. Keys share a few instances, as a key could not be told by itself.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import bytewax.operators as op  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.inputs import DynamicSource, StatelessSourcePartition  # type: ignore[import-not-found]
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]

from .graph import Routes, stateful, targets
from .lines import Lines
from .messages import END_US, Message, line_time_us, parse, row
from .outlog import OutLog
from .queries import Counting, counting, query, specification
from .stages import Keys

MARK_US = 1_000  # the least that time has to go on until it is told again
INSTANCES_PER_WORKER = 4
"""Instances of a step with state: more of them are spread more evenly over the workers, but cost more marks."""
RESULT = ""  # where a row goes that is a result


class Mark(NamedTuple):
    """No message before this time will come from this sender."""

    sender: str
    time_us: int


class Put(NamedTuple):
    """A message for one side of a step."""

    side: int
    message: Message


Sent = tuple[str, str, Any]  # the step, its instance, and a Put or a Mark; or RESULT and a row


class Count(op.StatefulBatchLogic):  # type: ignore[misc]
    """The running count of one key; a row for every event."""

    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[Any]) -> tuple[Iterable[int], bool]:
        first = self._count + 1
        self._count += len(values)
        return range(first, self._count + 1), False

    def snapshot(self) -> int:
        return self._count


class _Partition(StatelessSourcePartition):  # type: ignore[misc]
    def __init__(self, port: int, worker_index: int) -> None:
        self._lines = Lines(port, blocking=False)
        self._sender, self._marked_us = f"source/{worker_index}", 0

    def next_batch(self) -> list[Any]:
        lines = self._lines.read()
        if lines is None:
            raise StopIteration
        return lines

    def close(self) -> None:
        self._lines.close()


class _TimedPartition(_Partition):
    """Lines of messages, and behind them how far their times have come."""

    def next_batch(self) -> list[Any]:
        if self._marked_us == END_US:
            raise StopIteration
        lines: list[Any] | None = self._lines.read()
        if lines is None:
            lines, time_us = [], END_US
        elif lines:
            time_us = line_time_us(lines[-1])
        else:
            return lines
        if time_us >= self._marked_us + MARK_US:
            self._marked_us = time_us
            lines.append(Mark(self._sender, time_us))
        return lines


class _Source(DynamicSource):  # type: ignore[misc]
    """Every worker opens a connection of its own and gets its share of the events."""

    def __init__(self, port: int, kind: type[_Partition]) -> None:
        self._port, self._kind = port, kind

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Partition:
        return self._kind(self._port, worker_index)


class _Writer(StatelessSinkPartition):  # type: ignore[misc]
    def __init__(self, log: OutLog) -> None:
        self._log = log

    def write_batch(self, items: list[bytes]) -> None:
        self._log.rows(items)

    def close(self) -> None:
        self._log.close()


class _Sink(DynamicSink):  # type: ignore[misc]
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Writer:
        return _Writer(OutLog(self._directory, f"{worker_index}"))


class _Ways:
    """From one place on, through the steps without state."""

    def __init__(self, spec: dict[str, Any], goals: list[str]) -> None:
        self._instances = [str(i) for i in range(INSTANCES_PER_WORKER * spec["workers"])]
        self._goals = goals
        self._sent: list[Sent] = []
        self.routes = Routes(spec, self._out, self._into)

    def _out(self, sink: str, message: Message) -> None:
        self._sent.append((RESULT, "", row(sink, message)))

    def _into(self, name: str, side: int, message: Message) -> None:
        # Not hash(): that of a text is another one in every process.
        instance = self._instances[zlib.crc32(message.key.encode()) % len(self._instances)]
        self._sent.append((name, instance, Put(side, message)))

    def mark(self, mark: Mark) -> None:
        """Tell the time to everyone who gets messages from here."""
        self._sent += [(name, instance, mark) for name in self._goals for instance in self._instances]

    def sent(self) -> list[Sent]:
        sent = self._sent
        self._sent = []
        return sent


class _Stage(op.StatefulBatchLogic):  # type: ignore[misc]
    """One instance of a step with state: the messages of its keys, and how far each sender has come."""

    def __init__(self, spec: dict[str, Any], step: dict[str, Any], senders: int) -> None:
        # It is not told which instance it is.
        self._sender = uuid.uuid4().hex
        self._ways = _Ways(spec, targets(spec, [step["name"]]))
        self._stage = Keys(step, self._ways.routes.emit((step["name"], 0)))
        self._senders = senders
        self._marks_us: dict[str, int] = {}
        self._now_us = 0

    def on_batch(self, values: list[Put | Mark]) -> tuple[Iterable[Sent], bool]:
        for value in values:
            if isinstance(value, Put):
                self._stage.put(value.side, value.message)
            else:
                self._marks_us[value.sender] = value.time_us
                self._advance()
        return self._ways.sent(), False

    def _advance(self) -> None:
        if len(self._marks_us) < self._senders:
            return
        now_us = min(self._marks_us.values())
        if now_us > self._now_us:
            self._now_us = now_us
            self._stage.advance(now_us)
            self._ways.mark(Mark(self._sender, now_us))

    def snapshot(self) -> None:
        # The dataflow is run without recovery, as all engines are here: nobody would read it.
        return None


def _graph(lines: Any, spec: dict[str, Any]) -> Any:
    """Connect everything from the lines and marks of the source on; return the stream of rows."""
    workers = spec["workers"]
    goals = targets(spec, spec["sources"])
    ways = _Ways(spec, goals)

    def begin(batch: list[bytes | Mark]) -> list[Sent]:
        for item in batch:
            if isinstance(item, Mark):
                ways.mark(item)
            else:
                ways.routes.put(parse(item))
        return ways.sent()

    made = [(op.flat_map_batch("messages", lines, begin), goals, workers)]
    for step in stateful(spec):
        name = step["name"]
        inputs = [(stream, senders) for stream, goals, senders in made if name in goals]
        streams = [op.flat_map_batch(f"{name}-from-{i}", stream, _only(name)) for i, (stream, _) in enumerate(inputs)]
        whole = op.merge(f"{name}-all", *streams) if len(streams) > 1 else streams[0]
        senders = sum(count for _, count in inputs)
        stepped = op.stateful_batch(name, whole, lambda _, step=step, senders=senders: _Stage(spec, step, senders))
        sent = op.key_rm(f"{name}-sent", stepped)
        made.append((sent, targets(spec, [name]), INSTANCES_PER_WORKER * workers))
    rows = [op.flat_map_batch(f"rows-{i}", stream, _rows) for i, (stream, _, _) in enumerate(made)]
    return op.merge("rows", *rows)


def _only(name: str) -> Any:
    return lambda batch: [(instance, value) for goal, instance, value in batch if goal == name]


def _rows(batch: list[Sent]) -> list[bytes]:
    return [value for goal, _, value in batch if goal == RESULT]


def _counts(items: Any, keys: Callable[[Any], Iterable[str]]) -> Any:
    keyed = op.flat_map_batch("keys", items, lambda batch: [(key, None) for item in batch for key in keys(item)])
    return op.stateful_batch("count", keyed, Count)


def _over_socket(flow: Any, spec: dict[str, Any]) -> None:
    timed = spec["workload"] == "file" and bool(stateful(spec))
    lines = op.input("lines", flow, _Source(spec["port"], _TimedPartition if timed else _Partition))
    wanted = None if timed else query(spec)
    if wanted is None:
        rows = _graph(lines, spec)
    elif isinstance(wanted, Counting):
        row = wanted.row
        rows = op.flat_map_batch("rows", _counts(lines, wanted.keys), lambda batch: [row(key, n) for key, n in batch])
    else:
        found = wanted.rows
        rows = op.flat_map_batch("rows", lines, lambda batch: [row for line in batch for row in found(line)])
    op.output("out", rows, _Sink(spec["out"]))


def _over_kafka(flow: Any, spec: dict[str, Any]) -> None:
    from bytewax.connectors import kafka  # type: ignore[import-not-found]
    from confluent_kafka import OFFSET_BEGINNING

    wanted, servers, message = counting(spec), [spec["servers"]], kafka.KafkaSinkMessage
    source = kafka.KafkaSource(servers, [spec["events"]], tail=True, starting_offset=OFFSET_BEGINNING)
    counts = _counts(op.input("events", flow, source), lambda message: wanted.keys(message.value))

    def rows(batch: list[tuple[str, int]]) -> list[Any]:
        return [message(key.partition("\t")[0].encode(), wanted.row(key, n)) for key, n in batch]

    sink = kafka.KafkaSink(servers, spec["results"], add_config={"linger.ms": spec["linger_ms"]})
    op.output("results", op.flat_map_batch("rows", counts, rows), sink)


flow = Dataflow("bench")
told = specification()
(_over_kafka if "servers" in told else _over_socket)(flow, told)
