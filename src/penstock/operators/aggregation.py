"""Keyed aggregation in its two halves: `Combine` before the shuffle (stateless), `Merge` after it (owns the state)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import BadRecord, InvalidOption, OperationFailed, PenstockError
from penstock.operators.aggregates import Aggregate, Custom
from penstock.operators.base import (
    BatchForm,
    BatchKind,
    BatchResult,
    Operation,
    Operator,
    RecordForm,
    StatefulOperator,
)
from penstock.operators.errors import Errors, describe_error, user_traceback
from penstock.operators.grouping import partials
from penstock.operators.keys import check_keys, key_source
from penstock.operators.loop import compile_loop
from penstock.operators.panes import spread_source
from penstock.operators.windows import Emit, Sliding, Window
from penstock.types import BIGINT, TIMESTAMP, Field, Record, Schema

LATE = "late"
"""The side output of a windowed aggregation that takes the records that came too late."""
_LOW = -(1 << 63)


def _no_time(column: str) -> None:
    raise BadRecord(f"the window's time column '{column}' is null.")


@dataclass(frozen=True)
class Aggregation(Operation):
    """The whole operation as users see it; the planner runs it as `Combine` and `Merge`."""

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    window: Window | None = None
    kind = "aggregate"
    stateful = True

    def bind(self, schema: Schema) -> Schema:
        if not self.aggregates:
            raise InvalidOption(option="aggregates", given={}, allowed="at least one, such as n=ps.agg.count()")
        if self.keys:
            check_keys(schema, self.keys)
        if self.window:
            self.window.check(schema)
        for _, aggregate in self.aggregates:
            aggregate.check(schema)
        return Schema(
            (
                *(schema.field(key) for key in self.keys),
                *(self.window.fields if self.window else ()),
                *(Field(name, aggregate.output(schema)) for name, aggregate in self.aggregates),
            )
        )

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        return {LATE: schema} if self.window else {}

    def partials(self, schema: Schema) -> Schema:
        """Schema of what travels between the halves; generated names, so that no user's column can clash."""
        fields = [Field(f"_k{i}", schema.field(key).type) for i, key in enumerate(self.keys)]
        if self.window:
            fields.append(Field("_w", TIMESTAMP, False))
        fields.append(Field("_n", BIGINT, False))
        for i, (_, aggregate) in enumerate(self.aggregates):
            fields += [Field(f"_p{i}_{j}", slot) for j, slot in enumerate(aggregate.slots(schema))]
        return Schema(tuple(fields))

    def partial_keys(self) -> tuple[str, ...]:
        """Names of the key columns in the partials."""
        return tuple(f"_k{i}" for i in range(len(self.keys)))

    @property
    def needs_records(self) -> bool:
        """Whether the records themselves must travel: panes of a block would tell only the order within each."""
        return isinstance(self.window, Sliding) and any(aggregate.ordered for _, aggregate in self.aggregates)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        raise NotImplementedError("the planner runs an aggregation as Combine and Merge")

    def describe(self) -> str:
        what = ", ".join(f"{name}={aggregate}" for name, aggregate in self.aggregates)
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"{what}{by}{f'; {self.window}' if self.window else ''}"

    def slot_places(self, first: int) -> list[tuple[str, ...]]:
        """Places in the accumulator list ``a`` that each aggregate's slots take, counted from ``first``."""
        places = []
        for _, aggregate in self.aggregates:
            n = len(aggregate.of_record())
            places.append(tuple(f"a[{first + j}]" for j in range(n)))
            first += n
        return places

    def of_record(self) -> list[tuple[str, ...]]:
        """Expressions of the partial of a whole record."""
        return [aggregate.of_record() for _, aggregate in self.aggregates]

    def of_partial(self) -> list[tuple[str, ...]]:
        """Expressions of a partial that came over the shuffle."""
        return [
            tuple(aggregate.unpack(f"r._p{i}_{j}") for j in range(len(aggregate.of_record())))
            for i, (_, aggregate) in enumerate(self.aggregates)
        ]

    def accumulate(self, find: str, store: str, values: list[tuple[str, ...]], head: str = "") -> list[str]:
        """Statements that merge ``values`` into the group's accumulator; ``head`` is counted in slot 0."""
        body, names = [], []
        for i, expressions in enumerate(values):
            names.append(tuple(f"x{i}_{j}" for j in range(len(expressions))))
            body += [f"x{i}_{j} = {e}" for j, e in enumerate(expressions)]
        body += [f"a = {find}", "if a is None:"]
        body.append(
            f"    {store} = a = [{', '.join([*([head] if head else []), *(n for group in names for n in group)])}]"
        )
        body.append("else:")
        places = self.slot_places(1 if head else 0)
        merges = list(zip((each for _, each in self.aggregates), places, names, strict=True))
        body += [f"    {line}" for each, slots, other in merges for line in each.before_merge(slots, other)]
        if head:
            body.append(f"    a[0] += {head}")
        body += [f"    {line}" for each, slots, other in merges for line in each.merge(slots, other)]
        return body

    @property
    def names(self) -> dict[str, object]:
        """What the aggregates' expressions refer to."""
        return {k: v for _, aggregate in self.aggregates for k, v in aggregate.names.items()}


def _window_source(window: Window) -> list[str]:
    return [f"t = r.{window.on}", f"if t is None: no_time({window.on!r})", f"w = t - t % {window.pane_us}"]


@dataclass(frozen=True)
class Combine(Operation):
    """Before the shuffle: partials for each key and window of a block, or the records themselves (``whole``)."""

    of: Aggregation
    whole: bool = False
    kind = "combine"

    @property
    def batch_kind(self) -> BatchKind:  # type: ignore[override]
        fast = self.whole or all(aggregate.arrow_functions for _, aggregate in self.of.aggregates)
        return BatchKind.VECTORISED if fast else BatchKind.LOOP

    def bind(self, schema: Schema) -> Schema:
        return schema if self.whole else self.of.partials(schema)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        output = self.bind(schema)
        window, event_time = self.of.window, "None"
        before, body, after = [], [], []
        if window:
            before.append("top = LOW")
            body += [*_window_source(window), "if t > top: top = t"]
            event_time = "None if top == LOW else top"
        if self.whole:
            body.append("append(r)")
        else:
            before.append("groups = {}")
            group = ", ".join([*(f"r.{key}" for key in self.of.keys), *(["w"] if window else [])])
            body.append(f"g = ({group}{',' if group else ''})")
            body += self.of.accumulate("groups.get(g)", "groups[g]", self.of.of_record(), head="1")
            after.append(f"for g, a in groups.items(): append(P(*g, a[0], {self._packed()}))")
        names = {**self.of.names, "LOW": _LOW, "no_time": _no_time, "P": output.record_type}
        process = compile_loop(errors.operation, body, names, errors, before=before, after=after, event_time=event_time)
        vectorised = self._vectorised(output)
        return Operator(process, schema=schema, output=output, vectorised=vectorised, tells_event_time=True)

    def _packed(self) -> str:
        places = self.of.slot_places(1)
        return ", ".join(
            aggregate.pack(slot)
            for (_, aggregate), slots in zip(self.of.aggregates, places, strict=True)
            for slot in slots
        )

    def _vectorised(self, output: Schema) -> BatchForm | None:
        if self.batch_kind is not BatchKind.VECTORISED:
            return None
        window, keys, whole = self.of.window, self.of.keys, self.whole
        aggregates = [aggregate for _, aggregate in self.of.aggregates]

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            by = [batch.column(key) for key in keys]
            event_time_us_max: int | None = None
            if window:
                times = batch.column(window.on)
                if times.null_count:
                    raise BadRecord("a window time is null.")
                micros = times.view(pa.int64()).to_numpy()
                by.append(pa.array(micros - micros % window.pane_us).view(TIMESTAMP.arrow))
                event_time_us_max = int(micros.max()) if len(micros) else None
            columns = batch if whole else partials(by, aggregates, batch, output)
            return BatchResult(columns, event_time_us_max=event_time_us_max)

        return vectorised

    def describe(self) -> str:
        return "records pass whole" if self.whole else "partial aggregates per block"


@dataclass(frozen=True)
class Merge(Operation):
    """After the shuffle: owns the keyed state, closes windows, sends results; always on the record path."""

    of: Aggregation
    input: Schema
    """Schema of the records before `Combine`."""
    whole: bool = False
    kind = "merge"
    stateful = True
    batch_kind = BatchKind.NONE

    def bind(self, schema: Schema) -> Schema:
        del schema
        return self.of.bind(self.input)

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        return {LATE: self.input} if self.whole else {}

    def build(self, schema: Schema, errors: Errors) -> Operator:
        return MergeOperator(self, schema, errors)

    def describe(self) -> str:
        return self.of.describe()


class MergeState(msgspec.Struct, array_like=True):
    """A `Merge`'s state on disk: all of it, or what has changed."""

    closed_until_us: int
    late_records: int
    gone: list[int]
    """Windows that closed since the last snapshot."""
    groups: list[tuple[int, Any, list[Any]]]
    """Window, key and accumulator."""


_encode_state = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(MergeState).decode


@dataclass(slots=True)
class _Closed:
    """Windows that start at or before ``until_us`` are closed; ``late_records`` came for them."""

    until_us: int = _LOW
    late_records: int = 0


class MergeOperator(StatefulOperator):
    """The state of one instance: accumulators by window and key (one nameless window without windows)."""

    def __init__(self, operation: Merge, schema: Schema, errors: Errors) -> None:
        self._of = operation.of
        self._errors = errors
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
        update = window is None or window.emit is Emit.UPDATE
        body = []
        count = ["closed.late_records += 1", "late.append(r)"] if whole else ["closed.late_records += r._n"]
        keys = of.keys if whole else of.partial_keys()
        key = f"k = {key_source(keys) if keys else '()'}"
        values = of.of_record() if whole else of.of_partial()
        if window:
            body += _window_source(window) if whole else ["w = r._w"]
        if isinstance(window, Sliding):
            body += [key, *spread_source([each for _, each in of.aggregates], of.slot_places(0), values)]
            body += ["if starts(w)[0] <= closed.until_us:", *(f"    {line}" for line in count)]
        else:
            if window:
                body += ["if w <= closed.until_us:", *(f"    {line}" for line in count), "    continue"]
                body += ["s = windows.get(w)", "if s is None: s = windows[w] = {}"]
            else:
                body += ["s = only"]
            body += [key, *of.accumulate("s.get(k)", "s[k]", values)]
            body.append(f"touched[{'w' if window else '0'}, k] = a")
        before, after, sides = ["touched = {}"], ["changed.update(touched)"], "None"
        if update:
            after.append(f"for (w, k), a in touched.items(): append(row(k, {'w' if window else 'None'}, a))")
        names: dict[str, object] = {
            **of.names,
            "closed": self._closed,
            "windows": self._windows,
            "changed": self._changed,
            "no_time": _no_time,
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

    def advance(self, event_time_us: int) -> list[Record]:
        window = self._of.window
        if window is None:
            return []
        watermark_us = event_time_us - window.lateness_us
        until_us = watermark_us - window.size_us
        if until_us <= self._closed.until_us:
            return []
        self._closed.until_us = until_us
        due = sorted(start for start in self._windows if start <= until_us)
        return self._close(due)

    def snapshot(self, full: bool) -> bytes:
        if full:
            groups = [(start, key, slots) for start, by_key in self._windows.items() for key, slots in by_key.items()]
        else:
            open_windows = self._windows
            groups = [(start, key, a) for (start, key), a in self._changed.items() if start in open_windows]
        state = MergeState(self._closed.until_us, self._closed.late_records, [] if full else self._gone, groups)
        try:
            packed = _encode_state(state)
        except (TypeError, OverflowError) as error:
            raise PenstockError(
                f"its state cannot be stored: {error}.",
                operation=self._errors.operation,
                hint="User-defined aggregates keep plain values: numbers, text, bytes, lists, dicts.",
            ) from error
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

    def finish(self) -> list[Record]:
        return self._close(sorted(self._windows)) if self._of.window else []

    def _close(self, starts: list[int]) -> list[Record]:
        window = self._of.window
        assert window is not None
        out: list[Record] = []
        for start in starts:
            groups = self._windows.pop(start)
            self._gone.append(start)
            if window.emit is Emit.UPDATE:
                continue
            try:
                out += [self._row(key, start, slots) for key, slots in groups.items()]
            except PenstockError as error:
                raise error.at(self._errors.operation) from None
            except Exception as error:
                raise OperationFailed(
                    operation=self._errors.operation,
                    cause=describe_error(error),
                    record=f"the result of window {start}",
                    user_traceback=user_traceback(error),
                ) from error
        return out
