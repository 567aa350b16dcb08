"""drop_duplicates: the first record of each key passes; `Timed` runs before the shuffle, `Distinct` holds the keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

import pyarrow as pa

from penstock.durations import format_us
from penstock.errors import BadRecord
from penstock.operators.base import (
    BatchKind,
    BatchResult,
    Expansion,
    Lateness,
    Operation,
    Operator,
    Result,
    StatefulOperator,
)
from penstock.operators.errors import Errors
from penstock.operators.keyed.match_once import watermark_source
from penstock.operators.keyed.state import KeyedState, Name
from penstock.operators.keyed.windows import check_time
from penstock.operators.keys import check_keys, key_source
from penstock.operators.loop import compile_loop
from penstock.types import Schema, attribute

_LOW = -(1 << 63)


def _no_time(column: str) -> None:
    raise BadRecord(f"the time column '{column}' is null.")


@dataclass(frozen=True)
class DropDuplicates(Operation):
    """Let the first record of each key pass, and again those that are more than ``within_us`` away from all that have.

    With W the watermark that every input has reached: a record before W is late, counted and dropped, and a key is held
    until W has passed its time by more than ``within_us``. So nothing that is on time can meet a key that is forgotten.
    Without a time, keys are held for ever.
    """

    keys: tuple[str, ...]
    on: str | None = None
    within_us: int = 0
    kind = "drop_duplicates"
    stateful = True

    def bind(self, schema: Schema) -> Schema:
        check_keys(schema, self.keys)
        if self.on is not None:
            check_time(schema, self.on, "the time column")
        return schema

    def expand(self, schemas: Sequence[Schema], read: Collection[str]) -> Expansion:
        del schemas, read
        return Expansion((("timed", Timed(self.on)),), Distinct(self), self.keys, self.keys)

    @property
    def readers_of_time(self) -> tuple[tuple[str, Lateness], ...]:
        return ((self.on, Lateness()),) if self.on is not None else ()

    @property
    def delays_us(self) -> dict[str, int]:
        return {self.on: 0} if self.on is not None else {}

    def describe(self) -> str:
        within = f", within {format_us(self.within_us)} of {self.on}" if self.on is not None else ""
        return f"{', '.join(self.keys)}{within}"


@dataclass(frozen=True)
class Timed(Operation):
    """Before the shuffle: a record without a time is bad."""

    on: str | None
    kind = "timed"

    def bind(self, schema: Schema) -> Schema:
        return schema

    def column_of(self, column: str, schema: Schema) -> str:
        del schema
        return column

    def build(self, schema: Schema, errors: Errors) -> Operator:
        on = self.on
        body = [f"if r.{attribute(on)} is None: no_time({on!r})"] if on is not None else []
        process = compile_loop(errors.operation, [*body, "append(r)"], {"no_time": _no_time}, errors)

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            if on is not None and batch.column(on).null_count:
                raise BadRecord("a time is null.")
            return BatchResult(batch)

        return Operator(process, schema=schema, output=schema, vectorised=vectorised)


@dataclass(frozen=True)
class Distinct(Operation):
    """After the shuffle: knows which keys have passed; always on the record path."""

    of: DropDuplicates
    kind = "drop_duplicates"
    stateful = True
    batch_kind = BatchKind.NONE

    def bind(self, schema: Schema) -> Schema:
        return self.of.bind(schema)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        return DistinctOperator(self.of, schema, errors)

    def describe(self) -> str:
        return self.of.describe()

    @property
    def state_signature(self) -> str:
        return self.describe()


Passed = int | tuple[int, ...]
"""When a key has passed: mostly once. Neither is anything that the collector looks at, however many keys there are."""


def _loaded(_name: Name, _key: Any, value: Any) -> Passed:
    if not isinstance(value, list):
        return int(value)
    return tuple(value) if len(value) > 1 else value[0] if value else 0


class DistinctOperator(StatefulOperator):
    """The state of one instance: the times at which each key has passed; 0 where no time counts.

    Attributes
    ----------
    watermark_us : int
        Records before this time are late.
    """

    hears_loading = True

    def __init__(self, of: DropDuplicates, schema: Schema, errors: Errors) -> None:
        self.watermark_us = _LOW
        self._of = of
        self._errors = errors
        self.state = KeyedState(errors.operation, several=len(of.keys) != 1, load=_loaded)
        self._times = self.state.open()
        self._ages: list[tuple[int, int, Any]] = []
        self._number = 0
        key = f"k = {key_source(of.keys)}"
        if of.on is None:
            body = [key, "if k not in times:", "    times[k] = 0", "    changed[k] = None", "    append(r)"]
            before = []
        else:
            body = [
                f"t = r.{attribute(of.on)}",
                "if t < watermark_us:",
                "    late_records += 1",
                "    continue",
                key,
            ]
            low, high = f"t - {of.within_us}", f"t + {of.within_us}"
            body += ["held = times.get(k)", "if held is None: times[k] = t", "elif type(held) is int:"]
            body += [f"    if {low} <= held <= {high}: continue", "    times[k] = (held, t)", "else:"]
            body += [f"    if any({low} <= each <= {high} for each in held): continue", "    times[k] = (*held, t)"]
            body += ["op.passed(t, k)", "append(r)"]
            before = watermark_source(0)
        names = {"op": self, "times": self._times, "changed": self._times.changed}
        process = compile_loop(errors.operation, body, names, errors, before=before, counts_late=of.on is not None)
        super().__init__(process, schema=schema, output=of.bind(schema))

    @property
    def held_keys(self) -> int:
        """How many keys are held."""
        return len(self._times)

    def passed(self, time_us: int, key: Any) -> None:
        """Take note of when a key can be forgotten."""
        self._number += 1
        heappush(self._ages, (time_us, self._number, key))
        self._times.changed[key] = None

    def advance(self, watermark_us: int) -> Result:
        if self._of.on is not None and watermark_us > self.watermark_us:
            self.watermark_us = watermark_us
            self._forget()
        return Result([])

    def _forget(self) -> None:
        ages, before_us = self._ages, self.watermark_us - self._of.within_us
        while ages and ages[0][0] < before_us:
            time_us, _, key = heappop(ages)
            held = self._times.get(key)
            if held is None or time_us not in ((held,) if isinstance(held, int) else held):
                continue  # of a state that was loaded, and has changed since
            self._times.changed[key] = None
            if isinstance(held, int):
                del self._times[key]
                continue
            at = held.index(time_us)
            left = held[:at] + held[at + 1 :]
            self._times[key] = left if len(left) > 1 else left[0]

    def finish(self) -> Result:
        return Result([])

    def header(self) -> Any:
        return self.watermark_us

    def on_loaded(self, name: Name, key: Any, held: Passed | None, before: Passed | None) -> None:
        del name
        if self._of.on is not None and held is not None and held != before:
            known = () if before is None else (before,) if isinstance(before, int) else before
            for time_us in (held,) if isinstance(held, int) else held:
                if time_us not in known:
                    self._number += 1
                    heappush(self._ages, (time_us, self._number, key))

    def caught_up(self, headers: Sequence[Any]) -> None:
        self.watermark_us = max(headers)

    def restored(self, headers: Sequence[Any]) -> None:
        self.caught_up(headers)
        if self._of.on is not None:
            each: dict[Any, Passed] = self._times
            ages = [(us, key) for key, held in each.items() for us in ((held,) if isinstance(held, int) else held)]
            self._ages = [(time_us, i, key) for i, (time_us, key) in enumerate(ages)]
            self._number = len(ages)
            heapify(self._ages)
