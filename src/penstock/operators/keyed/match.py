"""The half of a join behind the shuffle: `Match` holds the records of both sides until no partner can come any more.

What it builds where all pairs are wanted is here; `match_once` has the join that uses every record up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.operators.base import BatchKind, Operation, Operator, RecordForm, Result
from penstock.operators.errors import Errors
from penstock.operators.keyed.asof import AsOfOperator
from penstock.operators.keyed.bounds import Bounds
from penstock.operators.keyed.held import LOW_US, HoldingOperator
from penstock.operators.keyed.match_once import MatchOnceOperator, watermark_source
from penstock.operators.keyed.state import Name, Space
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.types import Record, Schema, attribute

if TYPE_CHECKING:
    from penstock.operators.keyed.join import Join

BUCKETS = 8
"""Records are dropped by buckets of time, this many in the time that a record is kept for."""
LEAVING_MIN = 500
"""Records that are let go in one call, at least: a bucket holds many, and records that come must not wait for it."""
_UNMATCHED = "unmatched"
"""Space with the numbers and keys of outer records that have no partner so far; the others are the buckets."""


def bucket_us(bounds: Bounds) -> int:
    """How long a bucket is."""
    return max(1, bounds.width_us // (2 * BUCKETS))


class Pairing(Enum):
    """How many pairs of a join a record may be in: all that there are, or one, which uses it up."""

    ALL = "all"
    ONCE = "once"


@dataclass(frozen=True)
class Match(Operation):
    """After the shuffle: owns the state, pairs records, counts what is late; always on the record path.

    With W the watermark that every input has reached, less the lateness: a record whose time is before W is late,
    counted and not joined; a record is dropped once W has passed the last time that a partner may have. A partner that
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
        if self.of.as_of:
            return AsOfOperator(self.of, self.left, self.right, schema, errors)
        return MatchOperator(self, schema, errors)

    def describe(self) -> str:
        return self.of.describe()

    @property
    def state_signature(self) -> str:
        return f"{self.describe()} ({self.input.ddl})"


class MatchOperator(HoldingOperator):
    """The state of one instance: records by side and key, numbered in the order in which they came."""

    hears_loading = True

    def __init__(self, operation: Match, schema: Schema, errors: Errors) -> None:
        self._of = of = operation.of
        self._outer = of.how.keeps_left, of.how.keeps_right
        self.state = self._open(errors.operation)
        self._sides: tuple[dict[Any, dict[int, Record]], dict[Any, dict[int, Record]]] = ({}, {})
        self._bucket_us = bucket_us(of.bounds)
        # A right record goes by the time of the first left record that it cannot be paired with, as it were.
        self._shift_us = of.bounds.low_us + of.bounds.high_us
        self._buckets: dict[int, Space] = {}
        self._first_bucket = LOW_US
        # Buckets that have expired and whose records have not all gone; the state holds them until then.
        self._leaving: deque[tuple[int, Iterator[tuple[int, Record]]]] = deque()
        self._leaving_records = 0
        self._at_leisure = not any(self._outer) and of.bounds.low_us <= 0 <= of.bounds.high_us
        self._unmatched = self.state.open(_UNMATCHED)
        # Keys whose records have not been loaded in the order in which they came.
        self._disordered: set[tuple[bool, Any]] = set()
        output = operation.bind(schema)
        pair, alone, other = of.output_source(operation.left, operation.right)
        key = key_source(of.tagged_keys)
        scope: dict[str, Any] = {"T": output.record_type}
        lines = [f"def left(x): return T({alone})", f"def right(y): return T({other})", f"def key(r): return {key}"]
        source = "\n".join(lines)
        exec(compile(source, f"<penstock {errors.operation}>", "exec"), scope)
        self._alone: tuple[Callable[[Record], Record], ...] = (scope["left"], scope["right"])
        self._key: Callable[[Record], Any] = scope["key"]
        process = self._compile(pair, key, output, errors)
        super().__init__(process, schema=schema, output=output)

    @property
    def held_records(self) -> int:
        """How many records are held."""
        return sum(map(len, self._buckets.values())) + self._leaving_records

    def _key_of(self, name: Name, number: int, row: Any) -> Any:
        return row if name == _UNMATCHED else super()._key_of(name, number, row)

    def _load(self, name: Name, number: int, values: Any) -> Any:
        if name != _UNMATCHED:
            return super()._load(name, number, values)
        return tuple(values) if len(self._of.keys) > 1 else values

    def open_bucket(self, bucket: int) -> Space:
        """Make room for the records of a time."""
        space = self._buckets[bucket] = self.state.open(bucket)
        return space

    def _compile(self, pair: str, key: str, output: Schema, errors: Errors) -> RecordForm:
        bounds = self._of.bounds
        left_outer, right_outer = self._outer
        body = ["t = r._t", "if t < watermark_us:", "    late_records += 1", "    continue", f"k = {key}"]
        if left_outer or right_outer:
            # Of a side that is not outer none has come with a null.
            body.append(f"if {' or '.join(f'r.{attribute(name)} is None' for name in self._of.tagged_keys)}:")
            body += ["    append(alone[r._side](r))", "    continue"]
        found = "if unmatched.pop(i, None) is not None: unmatched.changed[i] = None"
        alone = ["    if len(out) == before:", "        unmatched[n] = k", "        unmatched.changed[n] = None"]
        body += ["before = len(out)"] * (left_outer or right_outer)
        body += ["if r._side:", "    mine, theirs, y = rights, lefts.get(k), r", "    if theirs:"]
        body += [f"        low, high = t - {bounds.high_us}, t - {bounds.low_us}"]
        body += ["        for i, x in theirs.items():", "            if low <= x._t <= high:"]
        body += [f"                append(T({pair}))", *([f"                {found}"] * left_outer)]
        body += alone * right_outer
        body += ["else:", "    mine, theirs, x = lefts, rights.get(k), r", "    if theirs:"]
        body += [f"        low, high = t + {bounds.low_us}, t + {bounds.high_us}"]
        body += ["        for i, y in theirs.items():", "            if low <= y._t <= high:"]
        body += [f"                append(T({pair}))", *([f"                {found}"] * right_outer)]
        body += alone * left_outer
        body += ["held = mine.get(k)", "if held is None: held = mine[k] = {}"]
        moved = f"(t - {self._shift_us} if r._side else t)" if self._shift_us else "t"
        body += [f"b = {moved} // {self._bucket_us}", "bucket = buckets.get(b)"]
        body.append("if bucket is None: bucket = open_bucket(b)")
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
        after = ["op.next_number = n"]
        return compile_loop(errors.operation, body, names, errors, before=before, after=after, counts_late=True)

    def advance(self, watermark_us: int) -> Result:
        watermark_us -= self._of.lateness_us
        if watermark_us <= self.watermark_us:
            return Result([])
        self.watermark_us = watermark_us
        first = (watermark_us - self._of.bounds.high_us) // self._bucket_us
        if first > self._first_bucket:
            self._first_bucket = first
            for bucket in sorted(each for each in self._buckets if each < first):
                held = self._buckets.pop(bucket)
                self._leaving.append((bucket, iter(held.items())))
                self._leaving_records += len(held)
        return Result(self._let_go() if self._leaving else [])

    def _let_go(self) -> list[Record]:
        """Let go of records that no partner can come for; return the outer ones that have found none.

        Where there are no outer ones, when that happens changes no result, so it is done a few at a time.
        """
        left = LEAVING_MIN + self._leaving_records // 16 if self._at_leisure else self._leaving_records
        out: list[Record] = []
        sides, key_of, unmatched = self._sides, self._key, self._unmatched
        while self._leaving:
            bucket, records = self._leaving[0]
            count = 0
            for number, row in islice(records, left):
                side, key = sides[row._side], key_of(row)
                held = side[key]
                del held[number]
                if not held:
                    del side[key]
                if unmatched and unmatched.pop(number, None) is not None:
                    unmatched.changed[number] = None
                    out.append(self._alone[row._side](row))
                count += 1
            left -= count
            self._leaving_records -= count
            if not left and self._leaving_records:
                break
            self._leaving.popleft()
            self.state.drop(bucket)
        return out

    def finish(self) -> Result:
        rows = {number: row for bucket in self._buckets.values() for number, row in bucket.items()}
        out = [self._alone[rows[number]._side](rows[number]) for number in sorted(self._unmatched)]
        for bucket in [*self._buckets, *(bucket for bucket, _ in self._leaving)]:
            self.state.drop(bucket)
        self._leaving.clear()
        self._leaving_records = 0
        self._unmatched.changed.update(dict.fromkeys(self._unmatched))
        for each in (self._unmatched, *self._sides, self._buckets):
            each.clear()
        return Result(out)

    def on_loaded(self, name: Name, number: int, row: Any, before: Any) -> None:
        if name == _UNMATCHED:
            return
        known = row if row is not None else before
        side, key = self._sides[known._side], self._key(known)
        held = side.get(key)
        if row is None:
            if held is not None and held.pop(number, None) is not None and not held:
                del side[key]
            return
        if held is None:
            held = side[key] = {}
        elif next(reversed(held)) > number:
            self._disordered.add((known._side, key))
        held[number] = row

    def caught_up(self, headers: Sequence[Any]) -> None:
        super().restored(headers)
        self._buckets |= {name: space for name, space in self.state.spaces.items() if isinstance(name, int)}
        for side, key in self._disordered:
            if (held := self._sides[side].get(key)) is not None:
                rows = sorted(held.items())
                held.clear()
                held.update(rows)
        self._disordered.clear()

    def restored(self, headers: Sequence[Any]) -> None:
        super().restored(headers)
        self._buckets |= {name: space for name, space in self.state.spaces.items() if isinstance(name, int)}
        rows = [(number, row) for bucket in self._buckets.values() for number, row in bucket.items()]
        for number, row in sorted(rows, key=lambda each: each[0]):
            self._sides[row._side].setdefault(self._key(row), {})[number] = row
