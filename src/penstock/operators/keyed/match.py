"""The half of a join behind the shuffle: `Match` holds the records of both sides until no partner can come any more.

What it builds where all pairs are wanted is here; `match_once` has the join that uses every record up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.operators.base import BatchKind, Operation, Operator, RecordForm, StatefulOperator
from penstock.operators.errors import Errors
from penstock.operators.keyed.match_once import MatchOnceOperator, watermark_source
from penstock.operators.keyed.state import KeyedState, Name, Space
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.operators.stateless.lookup import How
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from penstock.operators.keyed.join import Join

BUCKETS = 8
"""Records are dropped by buckets of time, this many in the time that a record is kept for."""
_LOW = -(1 << 63)
_UNMATCHED = "unmatched"
"""Space with the numbers and keys of outer records that have no partner so far; the others are the buckets."""


def bucket_us(within_us: int) -> int:
    """How long a bucket is."""
    return max(1, within_us // BUCKETS)


class Pairing(Enum):
    """How many pairs of a join a record may be in: all that there are, or one, which uses it up."""

    ALL = "all"
    ONCE = "once"


@dataclass(frozen=True)
class Match(Operation):
    """After the shuffle: owns the state, pairs records, counts what is late; always on the record path.

    With W the watermark that every input has reached, less the lateness: a record whose time is before W is late,
    counted and not joined; a record is dropped once W has passed its time by more than ``within``. A partner that
    came later than that would be late itself, so the results are all pairs of the records that are not late,
    however the two sides are interleaved. Where each record may be in one pair only, the order of time decides which.
    """

    of: Join
    left: Schema
    right: Schema
    kind = "join"
    stateful = True
    batch_kind = BatchKind.NONE

    @property
    def input(self) -> Schema:
        """Schema of what comes over the shuffle."""
        return self.of.tagged(self.left, self.right)

    def bind(self, schema: Schema) -> Schema:
        del schema
        return self.of.bind(self.left, self.right)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        if self.of.match is Pairing.ONCE:
            return MatchOnceOperator(self.of, self.left, self.right, schema, errors)
        return MatchOperator(self, schema, errors)

    def describe(self) -> str:
        return self.of.describe()

    @property
    def state_signature(self) -> str:
        return f"{self.describe()} ({self.input.ddl})"


class MatchOperator(StatefulOperator):
    """The state of one instance: records by side and key, numbered in the order in which they came.

    Attributes
    ----------
    watermark_us : int
        Records before this time are late.
    next_number : int
        Number of the next record that is held.
    """

    def __init__(self, operation: Match, schema: Schema, errors: Errors) -> None:
        self.watermark_us = _LOW
        self.next_number = 0
        self._of = of = operation.of
        self._outer = of.how is How.LEFT
        self.state = KeyedState(errors.operation, several=False, key_of=self._key_of, load=self._load)
        self._sides: tuple[dict[Any, dict[int, Record]], dict[Any, dict[int, Record]]] = ({}, {})
        self._bucket_us = bucket_us(of.within_us)
        self._buckets: dict[int, Space] = {}
        self._first_bucket = _LOW
        self._unmatched = self.state.open(_UNMATCHED)
        output = operation.bind(schema)
        pair, alone = of.output_source(operation.left, operation.right)
        key = key_source(of.tagged_keys)
        scope: dict[str, Any] = {"T": output.record_type}
        source = f"def alone(x): return T({alone})\ndef key(r): return {key}"
        exec(compile(source, f"<penstock {errors.operation}>", "exec"), scope)
        self._alone: Callable[[Record], Record] = scope["alone"]
        self._key: Callable[[Record], Any] = scope["key"]
        process = self._compile(pair, key, output, errors)
        super().__init__(process, schema=schema, output=output)

    @property
    def held_records(self) -> int:
        """How many records are held."""
        return sum(map(len, self._buckets.values()))

    def _key_of(self, name: Name, number: int, value: Any) -> Any:
        del number
        return value if name == _UNMATCHED else self._key(value)

    def _load(self, name: Name, number: int, value: Any) -> Any:
        del number
        if name != _UNMATCHED:
            return self._schema.record_type(*value)
        return tuple(value) if len(self._of.keys) > 1 else value

    def open_bucket(self, bucket: int) -> Space:
        """Make room for the records of a time."""
        space = self._buckets[bucket] = self.state.open(bucket)
        return space

    def _compile(self, pair: str, key: str, output: Schema, errors: Errors) -> RecordForm:
        within_us = self._of.within_us
        body = ["t = r._t", "if t < watermark_us:", "    op.late_records += 1", "    continue", f"k = {key}"]
        if self._outer:
            body.append(f"if {' or '.join(f'r.{name} is None' for name in self._of.tagged_keys)}:")
            body += ["    append(alone(r))", "    continue"]
        body += [f"low = t - {within_us}", f"high = t + {within_us}"]
        body += ["if r._side:", "    mine, theirs, y = rights, lefts.get(k), r", "    if theirs:"]
        body += ["        for i, x in theirs.items():", "            if low <= x._t <= high:"]
        body.append(f"                append(T({pair}))")
        if self._outer:
            body.append("                if unmatched.pop(i, None) is not None: unmatched.changed[i] = None")
        body += ["else:", "    mine, theirs, x, before = lefts, rights.get(k), r, len(out)", "    if theirs:"]
        body += ["        for y in theirs.values():", f"            if low <= y._t <= high: append(T({pair}))"]
        if self._outer:
            body += ["    if len(out) == before:", "        unmatched[n] = k", "        unmatched.changed[n] = None"]
        body += ["held = mine.get(k)", "if held is None: held = mine[k] = {}"]
        body += [f"b = t // {self._bucket_us}", "bucket = buckets.get(b)", "if bucket is None: bucket = open_bucket(b)"]
        body += ["held[n] = bucket[n] = r", "bucket.changed[n] = None", "n += 1"]
        names = {
            "op": self,
            "T": output.record_type,
            "alone": self._alone,
            "lefts": self._sides[False],
            "rights": self._sides[True],
            "buckets": self._buckets,
            "open_bucket": self.open_bucket,
            "unmatched": self._unmatched,
        }
        before = [*watermark_source(self._of.lateness_us), "n = op.next_number"]
        return compile_loop(errors.operation, body, names, errors, before=before, after=["op.next_number = n"])

    def advance(self, watermark_us: int) -> list[Record]:
        watermark_us -= self._of.lateness_us
        if watermark_us <= self.watermark_us:
            return []
        self.watermark_us = watermark_us
        return self._drop_old()

    def _drop_old(self) -> list[Record]:
        """Drop the buckets that no partner can come for; return the outer records in them that have found none."""
        first = (self.watermark_us - self._of.within_us) // self._bucket_us
        if first <= self._first_bucket:
            return []
        self._first_bucket = first
        out = []
        for bucket in sorted(each for each in self._buckets if each < first):
            for number, row in self._buckets.pop(bucket).items():
                side, key = self._sides[row._side], self._key(row)
                held = side[key]
                del held[number]
                if not held:
                    del side[key]
                if self._unmatched.pop(number, None) is not None:
                    self._unmatched.changed[number] = None
                    out.append(self._alone(row))
            self.state.drop(bucket)
        return out

    def finish(self) -> list[Record]:
        rows = {number: row for bucket in self._buckets.values() for number, row in bucket.items()}
        out = [self._alone(rows[number]) for number in sorted(self._unmatched)]
        for bucket in self._buckets:
            self.state.drop(bucket)
        self._unmatched.changed.update(dict.fromkeys(self._unmatched))
        for each in (self._unmatched, *self._sides, self._buckets):
            each.clear()
        return out

    def header(self) -> Any:
        return self.watermark_us, self.late_records, self.next_number

    def restored(self, headers: Sequence[Any]) -> None:
        ((self.watermark_us, self.late_records, self.next_number),) = headers
        self._buckets |= {name: space for name, space in self.state.spaces.items() if isinstance(name, int)}
        rows = [(number, row) for bucket in self._buckets.values() for number, row in bucket.items()]
        for number, row in sorted(rows, key=lambda each: each[0]):
            self._sides[row._side].setdefault(self._key(row), {})[number] = row
