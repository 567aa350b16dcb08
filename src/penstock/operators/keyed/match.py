"""The half of a join behind the shuffle: `Match` holds the records of both sides until no partner can come any more.

What it builds where all pairs are wanted is here; `match_once` has the join that uses every record up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.operators.base import BatchKind, Operation, Operator, RecordForm, StatefulOperator
from penstock.operators.errors import Errors
from penstock.operators.keyed.match_once import MatchOnceOperator, watermark_source
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.operators.stateless.lookup import How
from penstock.types import Record, Schema, attribute

if TYPE_CHECKING:
    from penstock.operators.keyed.join import Join

BUCKETS = 8
"""Records are dropped by buckets of time, this many in the time that a record is kept for."""
_LOW = -(1 << 63)


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


class MatchState(msgspec.Struct, array_like=True):
    """A `Match`'s state on disk: all of it, or what has changed. What has been dropped follows from the watermark."""

    watermark_us: int
    late_records: int
    next_number: int
    emptied: bool
    """Whether the state before is gone as a whole: the input had ended."""
    rows: list[tuple[int, bool, Any]]
    """Number, whether it is an outer record without a partner so far, and the values of each record held."""
    matched: list[int]
    """Outer records of earlier snapshots that have found a partner since."""


_encode_state = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(MatchState).decode


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
        self._rows: dict[int, Record] = {}
        self._sides: tuple[dict[Any, dict[int, Record]], dict[Any, dict[int, Record]]] = ({}, {})
        self._bucket_us = bucket_us(of.within_us)
        self._buckets: dict[int, list[int]] = {}
        self._first_bucket = _LOW
        self._unmatched: set[int] = set()
        # Since the last snapshot.
        self._matched: list[int] = []
        self._stored_number = 0
        self._emptied = False
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
        return len(self._rows)

    def _compile(self, pair: str, key: str, output: Schema, errors: Errors) -> RecordForm:
        within_us = self._of.within_us
        body = ["t = r._t", "if t < watermark_us:", "    op.late_records += 1", "    continue", f"k = {key}"]
        if self._outer:
            body.append(f"if {' or '.join(f'r.{attribute(name)} is None' for name in self._of.tagged_keys)}:")
            body += ["    append(alone(r))", "    continue"]
        body += [f"low = t - {within_us}", f"high = t + {within_us}"]
        body += ["if r._side:", "    mine, theirs, y = rights, lefts.get(k), r", "    if theirs:"]
        body += ["        for i, x in theirs.items():", "            if low <= x._t <= high:"]
        body.append(f"                append(T({pair}))")
        if self._outer:
            body += ["                if i in unmatched:", "                    unmatched.remove(i)"]
            body.append("                    matched.append(i)")
        body += ["else:", "    mine, theirs, x, before = lefts, rights.get(k), r, len(out)", "    if theirs:"]
        body += ["        for y in theirs.values():", f"            if low <= y._t <= high: append(T({pair}))"]
        if self._outer:
            body.append("    if len(out) == before: unmatched.add(n)")
        body += ["held = mine.get(k)", "if held is None: held = mine[k] = {}", "held[n] = rows_held[n] = r"]
        body += [f"b = t // {self._bucket_us}", "bucket = buckets.get(b)"]
        body += ["if bucket is None: buckets[b] = [n]", "else: bucket.append(n)", "n += 1"]
        names = {
            "op": self,
            "T": output.record_type,
            "alone": self._alone,
            "lefts": self._sides[False],
            "rights": self._sides[True],
            "rows_held": self._rows,
            "buckets": self._buckets,
            "unmatched": self._unmatched,
            "matched": self._matched,
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
            for number in self._buckets.pop(bucket):
                row = self._rows.pop(number)
                side, key = self._sides[row._side], self._key(row)
                held = side[key]
                del held[number]
                if not held:
                    del side[key]
                if number in self._unmatched:
                    self._unmatched.remove(number)
                    out.append(self._alone(row))
        return out

    def finish(self) -> list[Record]:
        out = [self._alone(self._rows[number]) for number in sorted(self._unmatched)]
        self._empty()
        self._emptied = True
        return out

    def _empty(self) -> None:
        for each in (self._rows, *self._sides, self._buckets, self._unmatched, self._matched):
            each.clear()

    def snapshot(self, full: bool) -> bytes:
        rows, unmatched, stored = self._rows, self._unmatched, self._stored_number
        numbers = rows if full else [number for number in range(stored, self.next_number) if number in rows]
        packed = _encode_state(
            MatchState(
                self.watermark_us,
                self.late_records,
                self.next_number,
                self._emptied and not full,
                [(number, number in unmatched, rows[number]) for number in numbers],
                [] if full else [number for number in self._matched if number < stored and number in rows],
            )
        )
        self._matched.clear()
        self._stored_number = self.next_number
        self._emptied = False
        return packed

    def restore(self, snapshots: Sequence[bytes]) -> None:
        record_type = self._schema.record_type
        for packed in snapshots:
            state = _decode_state(packed)
            if state.emptied:
                self._empty()
            self._unmatched.difference_update(state.matched)
            for number, alone, values in state.rows:
                self._hold(number, record_type(*values))
                if alone:
                    self._unmatched.add(number)
            self.watermark_us, self.late_records = state.watermark_us, state.late_records
            self.next_number = self._stored_number = state.next_number
            # What came out of it then is part of the output already.
            self._drop_old()

    def _hold(self, number: int, row: Record) -> None:
        self._sides[row._side].setdefault(self._key(row), {})[number] = row
        self._rows[number] = row
        self._buckets.setdefault(row._t // self._bucket_us, []).append(number)
