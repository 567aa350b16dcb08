"""The pipeline that `penstock chaos` brings along, and the judge of what it has written; benchmarks use both.

Every record says which one it is: source, partition, number in it, key, number within key and partition, and a checksum
of these. So what must be there can be made again without the job: `judge` reads the files that the sinks have
committed, and takes nothing from the job but how far each partition was read.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.connectors import files, generator
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.process import Process, state
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.streams.stream import stream

SOURCES = {"left": 3, "right": 2}
"""Sources of the pipeline, and the partitions of each."""
KEYS = 97
RATE_EPS = 1_000
"""Records each second, of all sources together."""
REPLICAS = (1, 3)
PASSED, TOTALS = "passed", "totals"
"""Directories of the two sinks: every record, and what is counted of each key."""
_WORK = 40
"""Checksums that the slow operation takes of a record: about 40 µs."""
_RECORD = "source string, partition bigint, seq bigint, key bigint, key_seq bigint, crc bigint"


class Record(msgspec.Struct, frozen=True):
    """A record as the sink has it; ``nth`` says how many of its key had come to the state then, itself included."""

    source: str
    partition: int
    seq: int
    key: int
    key_seq: int
    crc: int
    nth: int


class Total(msgspec.Struct, frozen=True):
    """What was counted of a key."""

    key: int
    records: int
    seqs: int


class Verdict(msgspec.Struct):
    """How the output differs from what it must be; all zero: it does not.

    Attributes
    ----------
    records : int
        Records that must be there.
    lost, duplicated : int
        Those that are not there, and those that are there again.
    reordered : int
        Records behind a later one of their key and partition.
    phantom : int
        Records that no source has given out.
    corrupt : int
        Records with other values than they were given.
    miscounted : int
        Keys whose state did not count each record once and in turn, or whose totals differ from a recomputation.
    """

    records: int
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    phantom: int = 0
    corrupt: int = 0
    miscounted: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether there was something, and nothing is wrong with it."""
        return self.records > 0 and not any(count for _, count in self.wrong)

    @property
    def wrong(self) -> list[tuple[str, int]]:
        """The counts that must be zero, by name."""
        return [
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("reordered", self.reordered),
            ("phantom", self.phantom),
            ("corrupt", self.corrupt),
            ("miscounted", self.miscounted),
        ]


def checksum(source: str, partition: int, seq: int, key: int, key_seq: int) -> int:
    """The checksum that a record carries."""
    return zlib.crc32(f"{source} {partition} {seq} {key} {key_seq}".encode())


def made(source: str, partition: int, seq: int) -> tuple[str, int, int, int, int, int]:
    """The record of this number: in each partition all keys come once in a round, in an order of its own."""
    rounds, place = divmod(seq, KEYS)
    key = (place * 31 + rounds * 7 + partition) % KEYS
    return source, partition, seq, key, rounds, checksum(source, partition, seq, key, rounds)


class _Numbered:
    """Makes the records of a source."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __call__(self, context: Any) -> tuple[str, int, int, int, int, int]:
        partitions = SOURCES[self._source]
        return made(self._source, context.offset % partitions, context.offset // partitions)


def _work(r: Any) -> tuple[str, int, int, int, int, int]:
    """Take some time, where replicas may."""
    packed = str(r.seq).encode() * 200
    for _ in range(_WORK):
        zlib.crc32(packed)
    return r.source, r.partition, r.seq, r.key, r.key_seq, r.crc


class _Counting(Process):
    """Says of each record which one of its key it is."""

    records = state.value(int, default=0)

    def on_record(self, record: Any, ctx: Any) -> Any:
        del ctx
        self.records += 1
        yield (record.source, record.partition, record.seq, record.key, record.key_seq, record.crc, self.records)


def pipeline(out: Path, rate_eps: float = RATE_EPS) -> Pipeline:
    """Two sources, an operation that may have replicas, a shuffle, a state and an aggregate by key, two sinks."""
    parts = [
        stream(
            name,
            generator(
                _Numbered(name), schema=_RECORD, format="columns", rate=rate_eps / len(SOURCES), partitions=partitions
            ),
        ).map(_work, schema=_RECORD, name=f"work_{name}", replicas=REPLICAS)
        for name, partitions in SOURCES.items()
    ]
    keyed = parts[0].merge(*parts[1:]).key_by("key")
    passed = keyed.process(_Counting, schema=f"{_RECORD}, nth bigint", name="counting")
    totals = keyed.aggregate(records=agg.count(), seqs=agg.sum("seq"), name="adding")
    return passed.to(files(out / PASSED), name=PASSED) + totals.to(files(out / TOTALS), name=TOTALS)


def judge(out: Path, offsets: Mapping[str, Sequence[int]]) -> Verdict:
    """Compare what the sinks have committed with what was read."""
    passed = msgspec.json.Decoder(Record)
    totals = msgspec.json.Decoder(Total)
    return compare(
        (passed.decode(line) for line in _lines(out / PASSED)),
        (totals.decode(line) for line in _lines(out / TOTALS)),
        offsets,
    )


def _lines(directory: Path) -> Iterator[bytes]:
    """Lines in order of epoch and instance: those of a key are in theirs."""
    for path in sorted(directory.glob("part-*")):
        yield from path.read_bytes().splitlines()


def compare(passed: Iterable[Record], totals: Iterable[Total], offsets: Mapping[str, Sequence[int]]) -> Verdict:
    """Compare rows with what must be there, given how far each partition of each source was read. Pure."""
    found = Verdict(sum(map(sum, offsets.values())))
    seen = {(source, at): bytearray(read) for source, parts in offsets.items() for at, read in enumerate(parts)}
    last: dict[tuple[str, int, int], int] = {}
    counted: Counter[int] = Counter()
    wrong: set[int] = set()
    for row in passed:
        place = row.source, row.partition
        if not 0 <= row.seq < len(seen.get(place, b"")):
            found.phantom += 1
            continue
        if (row.source, row.partition, row.seq, row.key, row.key_seq, row.crc) != made(*place, row.seq):
            found.corrupt += 1
            continue
        found.duplicated += seen[place][row.seq]
        seen[place][row.seq] = 1
        before = last.get((*place, row.key), -1)
        found.reordered += row.key_seq < before
        last[*place, row.key] = max(before, row.key_seq)
        counted[row.key] += 1
        if row.nth != counted[row.key]:
            wrong.add(row.key)
    found.lost = sum(each.count(0) for each in seen.values())
    found.miscounted = len(wrong | _miscounted(totals, offsets))
    return found


def _miscounted(totals: Iterable[Total], offsets: Mapping[str, Sequence[int]]) -> set[int]:
    """Keys whose count ever fell, or did not come to what it must."""
    exact: dict[int, tuple[int, int]] = {}
    for source, parts in offsets.items():
        for partition, read in enumerate(parts):
            for seq in range(read):
                key = made(source, partition, seq)[3]
                records, seqs = exact.get(key, (0, 0))
                exact[key] = records + 1, seqs + seq
    wrong: set[int] = set()
    came: dict[int, tuple[int, int]] = {}
    for row in totals:
        if row.records <= came.get(row.key, (0, 0))[0]:
            wrong.add(row.key)
        came[row.key] = row.records, row.seqs
    return wrong | {key for key in exact.keys() | came.keys() if exact.get(key) != came.get(key)}
