"""What a workload is: a source, a pipeline and the exact result; the benchmark runner and the tests use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timedelta
from operator import add, eq
from typing import Any, Generic, TypedDict, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

import penstock as ps
from penstock.connectors.base import Sink
from penstock.connectors.draws import FieldSpec
from penstock.connectors.generator import Generator
from penstock.connectors.rates import RateSchedule, as_schedule
from penstock.durations import parse_us
from penstock.errors import InvalidOption
from penstock.types import Record

REPLAY_RECORDS = 16_384  # records made again at a time when the input is replayed for the expected result
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")

Numbers = npt.NDArray[np.int64]
Rate = float | RateSchedule | None
Row = Mapping[str, Any]
"""A row of the output: what ``Harness.rows()`` and ``Memory.dicts()`` give, or a line of the files sink."""
E = TypeVar("E")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an output differs from the exact result.

    Where it is a count, a loss and a duplicate in the same group cancel each other: the count is all that it can tell.
    """

    lost: int = 0  # input records that should have had an effect and had none
    duplicated: int = 0  # effects of input records beyond their first
    wrong: int = 0  # output rows that no input record explains
    reordered: int = 0  # output rows that came after one that they should have come before

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(*map(add, astuple(self), astuple(other)))

    @property
    def exact(self) -> bool:
        return not any(astuple(self))


class Input(TypedDict, total=False):
    """How much input there is; with neither a total nor seconds it has no end."""

    total: int | None
    seconds: float | None  # with the records that the rate makes due in this time
    partitions: int | None  # the job's parallelism where not given
    seed: int


@dataclass(frozen=True)
class Workload(Generic[E]):
    """A pipeline to measure, with the means to check what came out."""

    name: str
    title: str
    fields: Mapping[str, object] | FieldSpec  # what the generator draws
    format: str
    build: Callable[[ps.Stream], ps.Stream]  # from the source's stream to the stream that goes into the sink
    expected: Callable[[Iterable[Record]], E]  # computes the exact result without Penstock's operators
    compare: Callable[[E, Iterable[Row], int], Comparison]  # with the output of a source with so many partitions
    yields: float = 1.0  # results of an event, on average: what its rows, or its counts, add up to
    group: tuple[str, ...] = ()  # columns that name the group of a running count; empty where each row is one result
    columns: tuple[str, ...] = ()  # of a row that leaves an engine: group and count, or the record's number and more
    line: Callable[[Record], bytes] | None = None  # what another engine reads; None where none has a program
    program: Callable[[], dict[str, Any]] = dict  # what the programs of other engines are told
    due: Callable[[Iterable[Record], Numbers], dict[tuple[Any, ...], Numbers]] | None = None
    """Scheduled times, ascending, of the records that count in each group; None where each row is one result."""
    not_in_sql: str | None = None  # why it cannot be written in SQL

    def source(self, rate: Rate, **input: Unpack[Input]) -> Generator:
        """Build the input; equal arguments give equal records, so a result can be checked after the run."""
        total, seconds = input.get("total"), input.get("seconds")
        if seconds is not None:
            total = due_in(rate, seconds, total)
        partitions, seed = input.get("partitions"), input.get("seed", 0)
        return ps.generator(self.fields, rate=rate, seed=seed, total=total, partitions=partitions, format=self.format)

    def pipeline(self, rate: Rate, sink: Sink, **input: Unpack[Input]) -> ps.Pipeline:
        """Build the pipeline from :meth:`source`, whose parameters these are, to ``sink``."""
        return self.build(ps.stream("events", self.source(rate, **input))).to(sink)


def due_in(rate: Rate, seconds: float, total: int | None) -> int:
    """How many records a rate makes due in a time; one that is due at its very end belongs to the time after it."""
    schedule = as_schedule(rate)
    if total is not None or schedule is None:
        raise InvalidOption(option="seconds", given=seconds, allowed="only with a rate, and instead of total")
    return schedule.due(parse_us(seconds, option="seconds") - 1)


def replay(source: Generator, start_us: int, read: Sequence[int] | None = None) -> Iterator[Record]:
    """Make the input of a run again, whose schedule began at ``start_us``.

    ``read`` is how many records each partition had read when the run was stopped; by default all of a source that ends.
    """
    if read is None:
        if source.total is None:
            raise InvalidOption(option="read", given=None, allowed="a list, as the source has no end")
        read = [source.total]
    partitions = len(read)
    end = max((count - 1) * partitions + i + 1 for i, count in enumerate(read))
    for first in range(0, end, REPLAY_RECORDS):
        for at, record in enumerate(source.records(first, min(REPLAY_RECORDS, end - first), start_us), first):
            if at // partitions < read[at % partitions]:
                yield record


def compare_counts(expected: Mapping[K, int], got: Mapping[K, int]) -> Comparison:
    return Comparison(
        lost=sum(max(count - got.get(group, 0), 0) for group, count in expected.items()),
        duplicated=sum(max(got.get(group, 0) - count, 0) for group, count in expected.items()),
        wrong=sum(group not in expected for group in got),
    )


def compare_updates(expected: Mapping[K, int], updates: Iterable[tuple[K, int]]) -> Comparison:
    """Compare the last of the counts that each group went through, each larger than the one before."""
    got: dict[K, int] = {}
    repeated = reordered = 0
    for group, count in updates:
        largest = got.get(group, 0)
        repeated += count == largest
        reordered += count < largest
        got[group] = max(count, largest)
    found = compare_counts(expected, got)
    return replace(found, wrong=found.wrong + repeated, reordered=reordered)


def compare_rows(
    expected: Mapping[int, E],
    got: Iterable[tuple[int, E]],
    partitions: int,
    same: Callable[[E, E], bool] = eq,
) -> Comparison:
    """Compare rows that carry the number of their input record; records of one partition keep their order."""
    seen: Counter[int] = Counter()
    newest: dict[int, int] = {}
    wrong = reordered = 0
    for number, value in got:
        if number not in expected or not same(expected[number], value):
            wrong += 1
            continue
        seen[number] += 1
        partition = number % partitions
        if number < newest.get(partition, -1):
            reordered += 1
        else:
            newest[partition] = number
    return Comparison(len(expected) - len(seen), seen.total() - len(seen), wrong, reordered)


def by_number(
    column: str | None, same: Callable[[Any, Any], bool] = eq
) -> Callable[[Mapping[int, Any], Iterable[Row], int], Comparison]:
    """Compare a column of rows by the number of their input record; without a column the number is all there is."""

    def compare(exact: Mapping[int, Any], rows: Iterable[Row], partitions: int) -> Comparison:
        got = ((row["number"], None if column is None else row[column]) for row in rows)
        return compare_rows(exact, got, partitions, same)

    return compare


def time_us(value: int | str) -> int:
    """Read a timestamp of the output: microseconds, or ISO-8601 text as the files sink writes it."""
    if isinstance(value, int):
        return value
    return (datetime.fromisoformat(value) - _EPOCH) // timedelta(microseconds=1)
