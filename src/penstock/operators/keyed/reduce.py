"""The half of an aggregation behind the shuffle: accumulators by window and key, and when windows close."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.operators.base import BatchKind, Operation, Operator, RecordForm, StatefulOperator
from penstock.operators.errors import Errors
from penstock.operators.keyed.aggregates import Custom
from penstock.operators.keyed.panes import no_time, pane_source, spread_source
from penstock.operators.keyed.sessions import SessionOperator
from penstock.operators.keyed.state import making_results, pack_state
from penstock.operators.keyed.windows import Emit, Session, Sliding
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from penstock.operators.keyed.aggregation import Aggregation

LATE = "late"
"""The side output of a windowed aggregation that takes the records that came too late."""
_LOW = -(1 << 63)


@dataclass(frozen=True)
class Reduce(Operation):
    """After the shuffle: owns the keyed state, closes windows, sends results; always on the record path."""

    of: Aggregation
    input: Schema
    """Schema of the records before `Combine`."""
    whole: bool = False
    kind = "reduce"
    stateful = True
    batch_kind = BatchKind.NONE

    def bind(self, schema: Schema) -> Schema:
        del schema
        return self.of.bind(self.input)

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        return {LATE: self.input} if self.whole else {}

    def build(self, schema: Schema, errors: Errors) -> Operator:
        if isinstance(self.of.window, Session):
            return SessionOperator(self.of, schema, errors, LATE)
        return ReduceOperator(self, schema, errors)

    def describe(self) -> str:
        return self.of.describe()

    @property
    def state_signature(self) -> str:
        return f"{self.describe()} ({self.input.ddl})"

    @property
    def remembers_us(self) -> int | None:
        window = self.of.window
        if window is None or isinstance(window, Session):
            return None
        return window.size_us + window.lateness_us + window.allowed_lateness_us


class ReduceState(msgspec.Struct, array_like=True):
    """A `Reduce`'s state on disk: all of it, or what has changed."""

    closed_until_us: int
    late_records: int
    gone: list[int]
    """Windows that closed since the last snapshot."""
    groups: list[tuple[int, Any, list[Any]]]
    """Window, key and accumulator."""


_decode_state = msgspec.msgpack.Decoder(ReduceState).decode


@dataclass(slots=True)
class _Closed:
    """Windows that start at or before ``until_us`` are closed and forgotten; ``late_records`` came for them."""

    until_us: int = _LOW
    late_records: int = 0


class ReduceOperator(StatefulOperator):
    """The state of one instance: accumulators by window and key (one nameless window without windows)."""

    def __init__(self, operation: Reduce, schema: Schema, errors: Errors) -> None:
        self._of = operation.of
        self._errors = errors
        self._whole = operation.whole
        self._closed = _Closed()
        self._windows: dict[int, dict[Any, list[Any]]] = {}
        # Since the last snapshot: accumulators that changed, by window and key, and windows that closed.
        self._changed: dict[tuple[int, Any], list[Any]] = {}
        self._gone: list[int] = []
        output = operation.bind(schema)
        self._row = self._compile_row(output)
        super().__init__(self._compile(operation.whole, errors), schema=schema, output=output)

    @property
    def late_records(self) -> int:
        """Records that came after their window had closed."""
        return self._closed.late_records

    @late_records.setter
    def late_records(self, value: int) -> None:
        self._closed.late_records = value

    @property
    def open_groups(self) -> int:
        """How many accumulators are held."""
        return sum(map(len, self._windows.values()))

    def _compile(self, whole: bool, errors: Errors) -> RecordForm:
        of, window = self._of, self._of.window
        emit = of.emit
        body = []
        count = ["closed.late_records += 1", "late.append(r)"] if whole else ["closed.late_records += r._n"]
        keys = of.keys if whole else of.partial_keys()
        key = f"k = {key_source(keys) if keys else '()'}"
        values = of.of_record() if whole else of.of_partial()
        if window:
            body += pane_source(window) if whole else ["w = r._w"]
        if isinstance(window, Sliding):
            body += [key, *spread_source([each for _, each in of.aggregates], of.slot_places(0), values)]
            if emit is Emit.EVERY:
                body.append("for u, *_ in todo: append(row(k, u, windows[u][k]))")
            body += ["if starts(w)[0] <= until_us:", *(f"    {line}" for line in count)]
        else:
            if window:
                body += ["if w <= until_us:", *(f"    {line}" for line in count), "    continue"]
                body += ["s = windows.get(w)", "if s is None: s = windows[w] = {}"]
            else:
                body += ["s = only"]
            body += [key, *of.accumulate("s.get(k)", "s[k]", values)]
            body.append(f"touched[{'w' if window else '0'}, k] = a")
            if emit is Emit.EVERY:
                body.append(f"append(row(k, {'w' if window else 'None'}, a))")
        before, after, sides = ["touched = {}"], ["changed.update(touched)"], "None"
        if window:
            before += ["until_us = closed.until_us"]
            before += ["if op.straggler_us is not None: until_us = max(until_us, closed_until_us(op.straggler_us))"]
        if emit is Emit.CHANGE:
            after.append(f"for (w, k), a in touched.items(): append(row(k, {'w' if window else 'None'}, a))")
        elif emit is Emit.CLOSE and window is not None and window.allowed_lateness_us:
            # What comes for a window that has closed and is kept makes its result anew.
            after.append(f"closed_us = closed.until_us + {window.allowed_lateness_us}")
            after.append("out += [row(k, w, a) for (w, k), a in touched.items() if w <= closed_us]")
        names: dict[str, object] = {
            **of.names,
            "op": self,
            "closed_until_us": self._forgotten_us,
            "closed": self._closed,
            "windows": self._windows,
            "changed": self._changed,
            "no_time": no_time,
            "row": self._row,
        }
        if whole:
            before.append("late = []")
            sides = f"{{{LATE!r}: late}} if late else None"
        if isinstance(window, Sliding):
            names["starts"] = window.starts
        if window is None:
            names["only"] = self._windows.setdefault(0, {})
        return compile_loop(errors.operation, body, names, errors, before=before, after=after, sides=sides)

    def _compile_row(self, output: Schema) -> Callable[[Any, int | None, list[Any]], Record]:
        of = self._of
        parts = []
        if of.keys:
            parts.append("k" if len(of.keys) == 1 else "*k")
        if of.window:
            parts.append(f"w, w + {of.window.size_us}")
        places = of.slot_places(0)
        parts += [aggregate.result(slots) for (_, aggregate), slots in zip(of.aggregates, places, strict=True)]
        made = f"T({', '.join(parts)})"
        if any(isinstance(aggregate, Custom) for _, aggregate in of.aggregates):
            made = f"check({made})"
        scope: dict[str, Any] = {**of.names, "T": output.record_type, "check": output.check}
        exec(compile(f"def row(k, w, a): return {made}", f"<penstock {self._errors.operation}>", "exec"), scope)
        row: Callable[[Any, int | None, list[Any]], Record] = scope["row"]
        return row

    def _forgotten_us(self, watermark_us: int) -> int:
        """The last start of the windows that are closed and not kept any longer at a watermark."""
        window = self._of.window
        assert window is not None
        return watermark_us - window.size_us - window.lateness_us - window.allowed_lateness_us

    def advance(self, watermark_us: int) -> list[Record]:
        window = self._of.window
        if window is None:
            return []
        until_us, before_us = self._forgotten_us(watermark_us), self._closed.until_us
        if until_us <= before_us:
            return []
        self._closed.until_us = until_us
        kept_us = window.allowed_lateness_us
        rows = self._results(start for start in self._windows if before_us < start - kept_us <= until_us)
        self._forget(start for start in self._windows if start <= until_us)
        return rows

    def snapshot(self, full: bool) -> bytes:
        if full:
            groups = [(start, key, slots) for start, by_key in self._windows.items() for key, slots in by_key.items()]
        else:
            open_windows = self._windows
            groups = [(start, key, a) for (start, key), a in self._changed.items() if start in open_windows]
        state = ReduceState(self._closed.until_us, self._closed.late_records, [] if full else self._gone, groups)
        packed = pack_state(state, self._errors.operation)
        self._changed.clear()
        self._gone.clear()
        return packed

    def restore(self, snapshots: Sequence[bytes]) -> None:
        several = len(self._of.keys) != 1
        for packed in snapshots:
            state = _decode_state(packed)
            for start in state.gone:
                self._windows.pop(start, None)
            for start, key, slots in state.groups:
                self._windows.setdefault(start, {})[tuple(key) if several else key] = slots
            self._closed.until_us, self._closed.late_records = state.closed_until_us, state.late_records

    def take_over(self, other: StatefulOperator) -> bool:
        if not isinstance(other, ReduceOperator):
            return super().take_over(other)
        # Not a copy: however many keys there are, it takes no time.
        self._windows, self._closed = other._windows, other._closed
        self._changed, self._gone = other._changed, other._gone
        self.process = self._compile(self._whole, self._errors)
        return True

    def take_converted(self, other: ReduceOperator, convert: Callable[[Any, list[Any]], list[Any]]) -> None:
        """Take the state of another aggregation, of each key what a function makes of its accumulators."""
        for start, groups in other._windows.items():
            mine = self._windows.setdefault(start, {})
            for key, slots in groups.items():
                with making_results(self._errors.operation, f"the state of {key!r}, converted"):
                    mine[key] = list(convert(key, list(slots)))
        self._closed.until_us, self._closed.late_records = other._closed.until_us, other._closed.late_records

    def finish(self) -> list[Record]:
        window = self._of.window
        if window is None:
            return []
        closed_us = self._closed.until_us + window.allowed_lateness_us
        rows = self._results(start for start in self._windows if start > closed_us)
        self._forget(self._windows)
        return rows

    def _forget(self, starts: Iterable[int]) -> None:
        for start in sorted(starts):
            del self._windows[start]
            self._gone.append(start)

    def _results(self, starts: Iterable[int]) -> list[Record]:
        """Results of windows that close, in order of time."""
        window = self._of.window
        assert window is not None
        if window.emit is not Emit.CLOSE:
            return []
        out: list[Record] = []
        for start in sorted(starts):
            with making_results(self._errors.operation, f"the result of window {start}"):
                out += [self._row(key, start, slots) for key, slots in self._windows[start].items()]
        return out
