"""The half of an aggregation behind the shuffle: accumulators by window and key, and when windows close."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from penstock.operators.base import BatchKind, Operation, Operator, RecordForm, Result, StatefulOperator
from penstock.operators.errors import Errors
from penstock.operators.keyed.counting import CountOperator
from penstock.operators.keyed.expiring import ExpiringOperator
from penstock.operators.keyed.firing import FiringOperator
from penstock.operators.keyed.panes import no_time, pane_source, spread_source
from penstock.operators.keyed.sessions import SessionOperator
from penstock.operators.keyed.state import KeyedState, Name, Space, making_results
from penstock.operators.keyed.windows import Emit, Global, Session, Sliding
from penstock.operators.keys import key_group, key_source
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
        window = self.of.window
        if window is not None and (window.early_us or isinstance(window, Global)):
            return FiringOperator(self.of, window, schema, self.bind(schema), errors, LATE if self.whole else None)
        if self.of.counts is not None:
            return CountOperator(self.of, self.of.counts, schema, errors)
        if self.of.ttl is not None:
            return ExpiringOperator(self.of, self.of.ttl, schema, errors)
        return ReduceOperator(self, schema, errors)

    def describe(self) -> str:
        return self.of.describe()

    @property
    def state_signature(self) -> str:
        return f"{self.describe()} ({self.input.ddl})"

    @property
    def remembers_us(self) -> int | None:
        window = self.of.window
        if window is None or isinstance(window, Session | Global):
            return None
        return window.size_us + window.lateness_us + window.allowed_lateness_us


@dataclass(slots=True)
class _Closed:
    """Windows that start at or before ``until_us`` are closed and forgotten: what comes for them is late.

    Results have been sent up to ``sent_us``: the same, unless key groups of instances that had come further and less
    far have come together, or the results of many keys are being sent. What has been sent then is no longer held, if
    its window is closed and forgotten. Of windows that are closed and kept, ``sending`` has the key groups whose
    results have not been sent yet; None: those of all.
    """

    until_us: int = _LOW
    sent_us: int = _LOW
    sending: dict[int, set[int] | None] = field(default_factory=dict)


class ReduceOperator(StatefulOperator):
    """The state of one instance: accumulators by key, in a space for each window (in one space without windows)."""

    def __init__(self, operation: Reduce, schema: Schema, errors: Errors) -> None:
        self._of = operation.of
        self._errors = errors
        self._whole = operation.whole
        self._closed = _Closed()
        self._ended: list[int] = []
        """Windows that are closed and not forgotten yet."""
        self._accumulator = self._of.accumulator()
        several = len(self._of.keys) != 1
        self.state = KeyedState(errors.operation, several=several, load=self._load, notes_fresh=True)
        self._windows: dict[Any, Space] = self.state.spaces
        output = operation.bind(schema)
        self._row = self._of.compile_row(output, errors.operation)
        self._output = output
        super().__init__(self._compile(operation.whole, errors), schema=schema, output=output)

    @property
    def open_groups(self) -> int:
        """How many accumulators are held."""
        return len(self.state)

    def _load(self, name: Name, key: Any, slots: list[Any]) -> msgspec.Struct:
        del name, key
        return self._accumulator(*slots)

    def _compile(self, whole: bool, errors: Errors) -> RecordForm:
        of, window = self._of, self._of.window
        emit = of.emit
        # Whether the accumulators that a call has changed are gathered, to be sent on or to be noted at once.
        touches = window is None or emit is Emit.CHANGE or bool(emit is Emit.CLOSE and window.allowed_lateness_us)
        body = []
        count = ["late_records += 1", "late.append(r)"] if whole else ["late_records += r._n"]
        keys = of.keys if whole else of.partial_keys()
        key = f"k = {key_source(keys) if keys else '()'}"
        values = of.of_record() if whole else of.of_partial()
        if window:
            body += pane_source(window) if whole else ["w = r._w"]
        if isinstance(window, Sliding):
            body += [key, *spread_source([each for _, each in of.aggregates], of.kept_places, values, touches)]
            if emit is Emit.EVERY:
                body.append("for u, *_ in todo: append(row(k, u, windows[u][k]))")
            body += ["if starts(w)[0] <= until_us:", *(f"    {line}" for line in count)]
        else:
            if window:
                body += ["if w <= until_us:", *(f"    {line}" for line in count), "    continue"]
                body += ["s = windows.get(w)", "if s is None: s = open_window(w)"]
            body += [key, *of.accumulate("s.get(k)", "s[k]", values, kept=True)]
            if not window:
                body.append("touched[k] = a")
            else:
                body += ["s.changed[k] = a", *(["touched[w, k] = a"] if touches else [])]
            if emit is Emit.EVERY:
                body.append(f"append(row(k, {'w' if window else 'None'}, a))")
        before, after, sides = [], [], "None"
        if touches:
            before.append("touched = {}")
        if not window:
            before.append("s = only")
            after.append("s.changed.update(touched)")
        if window:
            before += ["until_us = closed.until_us"]
            before += ["if op.straggler_us is not None: until_us = max(until_us, closed_until_us(op.straggler_us))"]
        if emit is Emit.CHANGE and window:
            after.append(f"out += [{of.row_source} for (w, k), a in touched.items()]")
        elif emit is Emit.CHANGE:
            after.append(f"out += [{of.row_source} for k, a in touched.items()]")
        elif emit is Emit.CLOSE and window is not None and window.allowed_lateness_us:
            # What comes for a window that has closed and is kept makes its result anew.
            after.append(f"closed_us = closed.until_us + {window.allowed_lateness_us}")
            after.append("touched = {each: a for each, a in touched.items() if each[0] <= closed_us}")
            after.append("if touched and closed.sending: touched = op.sent(touched)")
            after.append("out += [row(k, w, a) for (w, k), a in touched.items()]")
        names: dict[str, object] = {
            **of.row_names(self._output),
            "op": self,
            "closed_until_us": self._forgotten_us,
            "closed": self._closed,
            "windows": self._windows,
            "open_window": self.state.open,
            "A": self._accumulator,
            "no_time": no_time,
            "row": self._row,
        }
        if whole:
            before.append("late = []")
            sides = f"{{{LATE!r}: late}} if late else None"
        if isinstance(window, Sliding):
            names["starts"] = window.starts
        if window is None:
            names["only"] = self.state.open()
        late = window is not None
        return compile_loop(
            errors.operation, body, names, errors, before=before, after=after, sides=sides, counts_late=late
        )

    def _forgotten_us(self, watermark_us: int) -> int:
        """The last start of the windows that are closed and not kept any longer at a watermark."""
        window = self._of.window
        assert window is not None
        return watermark_us - window.size_us - window.lateness_us - window.allowed_lateness_us

    def advance(self, watermark_us: int) -> Result:
        window = self._of.window
        if window is None:
            return Result([])
        closed, until_us = self._closed, self._forgotten_us(watermark_us)
        if until_us <= closed.until_us:
            return Result([])
        closed.until_us = until_us
        self._find_closed()
        return self.go_on()

    def _find_closed(self) -> None:
        """Look which windows are to be sent and kept, and which to be forgotten, of which the earliest is the last."""
        window, closed = self._of.window, self._closed
        if window is None:
            return
        if kept_us := window.allowed_lateness_us:
            if window.emit is Emit.CLOSE:
                due = (start for start in self._windows if closed.sent_us < start - kept_us <= closed.until_us)
                closed.sending |= dict.fromkeys(due)
            closed.sent_us = closed.until_us
        self._ended = sorted((start for start in self._windows if start <= closed.until_us), reverse=True)

    def sent(self, touched: dict[tuple[int, Any], Any]) -> dict[tuple[int, Any], Any]:
        """Of what has changed in windows that have closed, that whose result has been sent: the rest will be."""
        waiting = {(start, key): self._closed.sending.get(start, ()) for start, key in touched}
        return {
            each: slots
            for each, slots in touched.items()
            if (groups := waiting[each]) is not None and key_group(each[1]) not in groups
        }

    @property
    def behind_us(self) -> int | None:
        is_behind = self._ended or self._closed.sending
        return self._closed.until_us - self._forgotten_us(0) if is_behind else None

    def go_on(self) -> Result:
        """Send on what has not been sent of windows that have closed; a large one by key groups.

        Windows that are not kept are forgotten, in the same parts, once there is nothing of the others to be sent.
        """
        window, closed, left = self._of.window, self._closed, self.rows_max
        assert window is not None
        rows = self._send_kept()
        if closed.sending:
            return Result(rows)
        if left is not None:
            left = max(0, left - len(rows))
        while self._ended:
            start = self._ended[-1]
            sends = window.emit is Emit.CLOSE and start - window.allowed_lateness_us > closed.sent_us
            if left is not None and len(self._windows[start]) > left:
                taken = self.state.take_out(start, left)
                return Result(rows + self._made(start, taken) if sends else rows)
            if sends:
                rows += self._made(start, self._windows[start].items())
            if left is not None:
                left -= len(self._windows[start])
            self.state.drop(start)
            self._ended.pop()
        if not window.allowed_lateness_us:
            closed.sent_us = closed.until_us
        return Result(rows)

    def _send_kept(self) -> list[Record]:
        """Results of windows that have closed and are kept: they stay in the state, whose key groups are told apart."""
        sending, rows, rows_max = self._closed.sending, list[Record](), self.rows_max
        while sending and (rows_max is None or len(rows) < rows_max):
            start = min(sending)
            groups, held = sending[start], self._windows[start]
            if groups is None and (rows_max is None or len(held) <= rows_max - len(rows)):
                rows += self._made(start, held.items())
                groups = set()
            elif groups is None:
                groups = sending[start] = set(self.state.groups_in(start))
            while groups and (rows_max is None or len(rows) < rows_max):
                rows += self._made(start, self.state.group_of(start, groups.pop()))
            if not groups:
                del sending[start]
        return rows

    def header(self) -> Any:
        closed = self._closed
        sending = [(start, groups if groups is None else sorted(groups)) for start, groups in closed.sending.items()]
        return closed.until_us, closed.sent_us, sending

    def restored(self, headers: Sequence[Any]) -> None:
        closed = self._closed
        closed.until_us = max(until_us for until_us, *_ in headers)
        closed.sent_us = min(sent_us for _, sent_us, _ in headers)
        for _, _, sending in headers:
            for start, groups in sending:
                known = closed.sending.get(start, ())
                if start in self._windows:
                    closed.sending[start] = None if groups is None or known is None else {*known, *groups}
        self._find_closed()

    def take_over(self, other: StatefulOperator) -> bool:
        if not isinstance(other, ReduceOperator):
            return super().take_over(other)
        # Not a copy: however many keys there are, it takes no time.
        self.state, self._windows, self._closed = other.state, other._windows, other._closed
        self._accumulator = other._accumulator
        self.process = self._compile(self._whole, self._errors)
        return True

    def take_converted(self, other: StatefulOperator, convert: Callable[[Any, Any], Any]) -> None:
        assert isinstance(other, ReduceOperator)
        for start, groups in other._windows.items():
            mine = self.state.open(start)
            for key, slots in groups.items():
                with making_results(self._errors.operation, f"the state of {key!r}, converted"):
                    mine[key] = self._accumulator(*convert(key, list(astuple(slots))))
        self._closed.until_us, self._closed.sent_us = other._closed.until_us, other._closed.sent_us

    def finish(self) -> Result:
        window = self._of.window
        if window is None:
            return Result([])
        self._ended = sorted(self._windows, reverse=True)
        return self.go_on()

    def results(self) -> list[Record]:
        """All that is held, as results that would be sent now."""
        window = self._of.window
        return [
            self._row(key, None if window is None else start, slots)
            for start, groups in sorted(self._windows.items())
            for key, slots in groups.items()
        ]

    def _made(self, start: int, entries: Iterable[tuple[Any, Any]]) -> list[Record]:
        row = self._row
        with making_results(self._errors.operation, f"the result of window {start}"):
            return [row(key, start, slots) for key, slots in entries]
