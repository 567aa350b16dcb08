"""What every source must do: read in order, say where it is, and go on from wherever it was, in any process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import monotonic

import msgspec

from penstock.connectors.base import End, Position, Run, Source, SourceReader
from penstock.connectors.memory import memory
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.pipeline.streams.stream import stream
from penstock.testing.cluster import Cluster
from penstock.testing.conformance.report import (
    Conformance,
    check_hidden,
    check_identity,
    check_refused,
    check_schema,
    now_us,
    sent,
    until,
)
from penstock.testing.rows import assert_rows, difference
from penstock.types import Record, nested_dict

HOUR_US = 3_600_000_000
POLL_S_MAX = 2.0
"""A poll must not wait; this much is a busy machine."""
POSITIONS_MAX = 25
"""From so many positions of a partition it is read again."""
_ODD = 7

Row = dict[str, object]


@dataclass
class _Partition:
    """A partition as it was read one record at a time."""

    rows: list[Row] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    """Before each record, and behind the last."""


def check_source(
    source: Source | End | Callable[[], Source | End],
    rows: Iterable[object] | None = None,
    *,
    ends: bool = True,
    replays: bool = True,
    append: Callable[[], Iterable[object]] | None = None,
    refused: Source | End | None = None,
    broken: Source | End | None = None,
    secrets: Sequence[str] = (),
    timeout_s: float = 60.0,
) -> Conformance:
    """Check that a source keeps the promises that exactly-once delivery rests on.

    Everything is read again from every position, by readers of other processes, in any portion and both forms; a job is
    run over it that loses its workers.

    Parameters
    ----------
    source : Source, or a function that returns one
        What to check; it must not change meanwhile. A function is called for every process that reads.
    rows : iterable, optional
        The records that are in it, in any order; all that comes is compared with them.
    ends : bool
        Whether it ends by itself. Of one that goes on, ``rows`` are read.
    replays : bool
        Whether it can be read again; one that cannot (a socket) is read once, and promises less.
    append : callable, optional
        Adds some records to a source that goes on, and returns them: what was idle must go on.
    refused : Source, optional
        One that cannot work (a file that is not there, an address where nobody is): `check` must refuse it.
    broken : Source, optional
        One with a record that it cannot read: the error must say so, and which one.
    secrets : sequence of str
        Credentials that the source was given; none may be shown anywhere.
    timeout_s : float
        How long records may take to arrive.

    Returns
    -------
    Conformance
        What was checked, and what was left out.

    Examples
    --------
    >>> check_source(ps.json_files("events.jsonl"), rows=[{"value": b"{}"}])            # doctest: +SKIP
    """
    __tracebackhide__ = True
    made = source if callable(source) and not isinstance(source, Source | End) else lambda: source
    suite = _SourceSuite(lambda: _source(made()), ends=ends, secrets=secrets, timeout_s=timeout_s)
    report = suite.run(None if rows is None else list(rows), replays=replays, append=append)
    if refused is not None:
        with report.check("what cannot work is refused before anything starts"):
            check_refused(_source(refused).check, secrets)
    if broken is not None:
        with report.check("a record that cannot be read is told"):
            check_refused(lambda: _read_all(_source(broken), timeout_s), secrets)
    return report


def _read_all(source: Source, timeout_s: float) -> None:
    source.check()
    count = source.partitions(1)
    for partition in range(count):
        with closing(source.reader(partition, count, now_us() - HOUR_US)) as reader:

            def ended(reader: SourceReader = reader) -> bool:
                while reader.poll(now_us(), 1_000) is not None:
                    pass
                return reader.wake_us(now_us()) is None

            until(ended, timeout_s)


def _source(given: object) -> Source:
    found = given.source() if isinstance(given, End) else given
    assert isinstance(found, Source), f"{found!r} is no Source"
    return found


class _SourceSuite:
    def __init__(self, make: Callable[[], Source], *, ends: bool, secrets: Sequence[str], timeout_s: float) -> None:
        self._make = make
        self._ends = ends
        self._secrets = secrets
        self._timeout_s = timeout_s
        self._start_us = now_us() - HOUR_US
        self._source = make()
        self._schema = self._source.schema
        self._count = 1
        """Of partitions."""
        self._wanted: int | None = None
        """How many records there are, of a source that goes on."""
        self._found: list[_Partition] = []
        self.report = Conformance(str(self._source.kind))

    def run(
        self, rows: list[object] | None, *, replays: bool, append: Callable[[], Iterable[object]] | None
    ) -> Conformance:
        __tracebackhide__ = True
        report, source = self.report, self._source
        assert self._ends or rows is not None, "give the rows of a source that does not end"
        wanted = None if rows is None else [self._row(self._schema.coerce(row)) for row in rows]
        self._wanted = None if self._ends or wanted is None else len(wanted)
        with report.check("it says what it is, and can be sent to workers"):
            check_schema(source.schema)
            check_identity(source, source.kind, self._secrets)
            source.check()
        with report.check("it has partitions"):
            self._count = source.partitions(2)
            counts = [source.partitions(2), sent(self._make()).partitions(2)]
            assert counts == [self._count] * 2, f"partitions(2) is {self._count}, then {counts}"
            assert self._count >= 1, f"partitions(2) is {self._count}"
            signature = source.signature(self._count)
            assert signature == sent(self._make()).signature(self._count), "its signature differs between processes"
            check_hidden(self._secrets, {"its signature": signature})
        with report.check("records come in portions, with a position behind each"):
            self._found = self._read_singly()
            if wanted is not None:
                assert_rows([row for each in self._found for row in each.rows], wanted)
        if replays:
            self._check_replay()
        else:
            report.left_out["it is read again"] = "it cannot be"
        if append is not None:
            with report.check("what was idle goes on"):
                self._check_idle(append)
        elif not self._ends:
            report.left_out["what was idle goes on"] = "no append= was given"
        with report.check("it hears of commits, also when it is closed, and closes twice"):
            for number, partition in enumerate(self._found):
                reader = self._open(number)
                if partition.positions and replays:
                    reader.seek(partition.positions[-1])
                    reader.committed(partition.positions[-1])
                reader.close()
                reader.close()
                if partition.positions and replays:
                    reader.committed(partition.positions[-1])
        return report

    # --- reading ------------------------------------------------------------------------------------------------------

    def _row(self, record: Record) -> Row:
        return nested_dict(record)

    def _open(self, partition: int, source: Source | None = None) -> SourceReader:
        return sent(source or self._make()).reader(partition, self._count, self._start_us)

    def _poll(self, reader: SourceReader, records_max: int) -> list[Row]:
        began_s, before = monotonic(), reader.offset
        batch = reader.poll(now_us(), records_max)
        took_s = monotonic() - began_s
        assert took_s < POLL_S_MAX, f"poll has waited {took_s:.1f} s: it must return None where nothing is there"
        if batch is None:
            return []
        assert batch.rows, "poll gave a batch without rows, and not None"
        assert len(batch.rows) <= records_max, f"poll({records_max}) gave {len(batch.rows)} records"
        counted = reader.offset - before
        assert counted == len(batch.rows), f"offset has grown by {counted}, and {len(batch.rows)} records came"
        for row in batch.rows:
            assert type(row) is self._schema.record_type, f"{row!r} is no record of the schema: schema.coerce(…)"
            self._schema.check(row)
        assert batch.due_us <= now_us(), f"due_us is {batch.due_us}, which is to come"
        _check_position(batch.at)
        spots = self._source.spots(Run(batch.at, len(batch.rows)), [0, len(batch.rows) - 1])
        assert len(spots) == 2, f"spots named {len(spots)} places for 2 records"
        return [self._row(row) for row in batch.rows]

    def _read_singly(self) -> list[_Partition]:
        readers = [self._open(partition) for partition in range(self._count)]
        found = [_Partition(positions=[reader.position()]) for reader in readers]
        live = set(range(self._count))

        def step() -> bool:
            for number in sorted(live):
                reader, partition = readers[number], found[number]
                while rows := self._poll(reader, 1):
                    position = reader.position()
                    _check_position(position)
                    assert position == reader.position(), "position() gives another one when it is asked again"
                    partition.rows += rows
                    partition.positions.append(position)
                if reader.wake_us(now_us()) is None:
                    assert self._ends, "it has ended"
                    live.discard(number)
            return not live or (self._wanted is not None and sum(len(each.rows) for each in found) >= self._wanted)

        came = until(step, self._timeout_s)
        assert came, (
            f"{sum(len(each.rows) for each in found)} records came, and it has not ended in {self._timeout_s} s"
        )
        for number, reader in enumerate(readers):
            if self._ends:
                assert reader.poll(now_us(), 1) is None, "records come after the end"
                assert reader.wake_us(now_us()) is None, "it has ended, and does not any more"
            backlog = reader.backlog_records(now_us())
            assert backlog >= 0, f"its backlog is {backlog}"
            assert found[number].rows or not backlog, f"nothing came of partition {number}, and {backlog} are due"
            reader.close()
        return found

    def _rest(self, reader: SourceReader, count: int, records_max: int) -> list[Row]:
        """Read ``count`` records, or to the end."""
        rows: list[Row] = []

        def step() -> bool:
            while len(rows) < count and (more := self._poll(reader, min(records_max, count - len(rows)))):
                rows.extend(more)
            return len(rows) >= count or reader.wake_us(now_us()) is None

        until(step, self._timeout_s)
        return rows

    # --- reading again ------------------------------------------------------------------------------------------------

    def _check_replay(self) -> None:
        report = self.report
        with report.check("it is read again from every position, by another process"):
            for number, at in self._sampled():
                partition = self._found[number]
                reader = self._open(number)
                reader.seek(_stored(partition.positions[at]))
                self._same(self._rest(reader, len(partition.rows) - at, _ODD), partition, at)
                reader.close()
        with report.check("a reader goes back and forth"):
            for number, partition in enumerate(self._found):
                reader = self._open(number)
                self._same(self._rest(reader, len(partition.rows), 1_000), partition, 0)
                for at in (len(partition.rows), 0, len(partition.rows) // 2):
                    reader.seek(partition.positions[at])
                    again = reader.position()
                    self._same(self._rest(reader, len(partition.rows) - at, 1_000), partition, at)
                    reader.seek(again)
                    self._same(self._rest(reader, len(partition.rows) - at, 1_000), partition, at)
                reader.close()
        with report.check("a resumed source goes on"):
            self._check_resumed()
        for partitions in self._other_counts():
            with report.check(f"a resumed source goes on in {partitions} partitions"):
                self._check_redealt(partitions)
        if self._names_runs():
            with report.check("other readers read runs that it names, in both forms"):
                for number, partition in enumerate(self._found):
                    self._check_runs(number, partition)
        else:
            assert not self._source.is_split, "is_split is true, and due_records is None"
            report.left_out["other readers read runs that it names, in both forms"] = "due_records is None"
        if self._ends:
            with report.check("a job that loses its workers gets every record once"):
                self._check_job()
        else:
            report.left_out["a job that loses its workers gets every record once"] = "it does not end"

    def _names_runs(self) -> bool:
        with closing(self._open(0)) as reader:
            return reader.due_records(now_us()) is not None

    def _check_resumed(self) -> None:
        halves = {number: each.positions[len(each.rows) // 2] for number, each in enumerate(self._found)}
        self._goes_on(halves, self._count)

    def _other_counts(self) -> list[int]:
        """Numbers of partitions that another parallelism has, and that its signature allows."""
        source = sent(self._make())
        others = {source.partitions(1), source.partitions(3)} - {self._count}
        return sorted(each for each in others if source.signature(each) == source.signature(self._count))

    def _check_redealt(self, partitions: int) -> None:
        source = sent(self._make())
        source.check()
        halves = {number: each.positions[len(each.rows) // 2] for number, each in enumerate(self._found)}
        positions = source.redealt(halves, partitions)
        assert sorted(positions) == [*range(partitions)], f"redealt(…, {partitions}) has partitions {sorted(positions)}"
        self._goes_on(positions, partitions)

    def _goes_on(self, positions: Mapping[int, Position], partitions: int) -> None:
        """What no partition had begun may be another one's now: all of them together have all the rest."""
        source = sent(self._make())
        source.check()
        resumed = sent(source.resumed(positions))
        assert resumed.schema == self._schema, "its schema has changed"
        expected = [row for each in self._found for row in each.rows[len(each.rows) // 2 :]]
        readers = [resumed.reader(number, partitions, self._start_us) for number in positions]
        found: list[Row] = []
        for number, reader in zip(positions, readers, strict=True):
            reader.seek(_stored(positions[number]))

        def step() -> bool:
            for reader in readers:
                while rows := self._poll(reader, _ODD):
                    found.extend(rows)
            ended = all(reader.wake_us(now_us()) is None for reader in readers)
            return ended if self._ends else len(found) >= len(expected)

        until(step, self._timeout_s)
        assert_rows(found, expected)
        for reader in readers:
            reader.close()

    def _sampled(self) -> list[tuple[int, int]]:
        places = []
        for number, partition in enumerate(self._found):
            count = len(partition.positions)
            step = max(1, count // POSITIONS_MAX)
            places += [(number, at) for at in {*range(0, count, step), count - 1}]
        return sorted(places)

    @staticmethod
    def _same(found: list[Row], partition: _Partition, at: int) -> None:
        expected = partition.rows[at:]
        text = difference(found, expected)
        assert text is None, f"from position {at}: {text}"
        assert [*map(repr, found)] == [*map(repr, expected)], f"from position {at} records come in another order"

    def _check_runs(self, number: int, partition: _Partition) -> None:
        reader, other, third = (self._open(number) for _ in range(3))
        due = reader.due_records(now_us())
        assert due is not None, "due_records is None for some partitions only"
        count = min(due, len(partition.rows), 5)
        if count:
            runs = reader.skip(count)
            assert sum(run.count for run in runs) == count, f"skip({count}) named {runs}"
            columns = [row for run in runs for row in self._schema.to_rows(other.read(run).columns)]
            self._same([self._row(row) for row in columns], _Partition(partition.rows[:count]), 0)
            rows = [self._row(row) for run in runs for row in third.rows(run)]
            self._same(rows, _Partition(partition.rows[:count]), 0)
            self._same(self._rest(reader, len(partition.rows) - count, 1_000), partition, count)
            recent = reader.recent(3)
            if recent is not None:
                sample = [self._row(row) for row in third.rows(recent)]
                assert sample, "recent named a run without records"
                assert all(row in partition.rows for row in sample), "recent named records that were not there"
        for each in (reader, other, third):
            each.close()

    def _check_job(self) -> None:
        calm, crashed = memory(), memory()
        for sink in (calm, crashed):
            pipeline = stream("in", self._make()).to(sink)
            options = Options.of(name="conformance", parallelism=2, epoch="10ms", queue_records=4)
            cluster = Cluster(Plan.of(pipeline.graph(), options))
            try:
                for steps in (3, 10, 30) if sink is crashed else ():
                    cluster.run_until(1 << 62, steps=steps)
                    if not cluster.ended:
                        cluster.crash(0)
                        cluster.crash(1)
                cluster.run_until(1 << 62)
            finally:
                cluster.close()
        assert_rows(crashed.dicts(), calm.dicts())
        lost = len(calm.rows) - sum(len(each.rows) for each in self._found)
        assert not lost, f"a job reads {len(calm.rows)} records, and readers {len(calm.rows) - lost}"

    def _check_idle(self, append: Callable[[], Iterable[object]]) -> None:
        readers = [self._open(number) for number in range(self._count)]
        for number, reader in enumerate(readers):
            reader.seek(self._found[number].positions[-1])
            assert not self._poll(reader, 1), "records come that are not there"
            assert reader.wake_us(now_us()) is not None, "it says that it has ended"
        added = [self._row(self._schema.coerce(row)) for row in append()]
        found: list[Row] = []

        def step() -> bool:
            for reader in readers:
                found.extend(self._poll(reader, 1_000))
            return len(found) >= len(added)

        until(step, self._timeout_s)
        assert_rows(found, added)
        for reader in readers:
            reader.close()


def _check_position(position: object) -> None:
    assert isinstance(position, int | bytes), f"a position is {position!r}: it must be a number or bytes"


def _stored(position: Position) -> Position:
    """A position as it comes back from a checkpoint."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(position), type=int | bytes)
