"""The state half of an aggregation in session windows: accumulators by key and session, which grow and grow together.

A session holds the records of a key of which each is at most the gap away from another one. A record is late when it
is behind the watermark, so none that is on time can belong to a session that has closed: what comes out is what a sort
of all records that are on time would give, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.operators.base import RecordForm, Result, StatefulOperator
from penstock.operators.errors import Errors
from penstock.operators.keyed.aggregates import Custom
from penstock.operators.keyed.match_once import watermark_source
from penstock.operators.keyed.panes import no_time, pane_source
from penstock.operators.keyed.state import KeyedState, Name, making_results
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from penstock.operators.keyed.aggregation import Aggregation

_LOW = -(1 << 63)
_HIGH = 1 << 63
_SLOTS = 2
"""A session is a list: its first and its last time, then the slots of the aggregates."""

Session = list[Any]


class SessionOperator(StatefulOperator):
    """The state of one instance: the open sessions of each key, in the order of time.

    Attributes
    ----------
    watermark_us : int
        Records before this time are late.
    """

    hears_loading = True

    def __init__(self, of: Aggregation, schema: Schema, errors: Errors, late_port: str) -> None:
        assert of.window is not None
        self.watermark_us = _LOW
        self._of = of
        self._window = of.window
        self._errors = errors
        self.state = KeyedState(errors.operation, several=len(of.keys) != 1)
        self._sessions = self.state.open()
        # When each session would close, as it was known when it was put here; every open session is here once.
        self._ends: list[tuple[int, int, Any, Session]] = []
        self._number = count()
        self._ending = False
        output = of.bind(schema)
        scope = self._helpers(output)
        self._row: Callable[[Any, Session], Record] = scope["row"]
        super().__init__(self._compile(scope, late_port), schema=schema, output=output)

    def _helpers(self, output: Schema) -> dict[str, Any]:
        """Generate how a result is made, and how a session takes another one in."""
        of, gap_us = self._of, self._window.size_us
        places, others = of.slot_places(_SLOTS), of.slot_places(_SLOTS, "b")
        absorbing = list(zip((each for _, each in of.aggregates), places, others, strict=True))
        keys = ["k" if len(of.keys) == 1 else "*k"] if of.keys else []
        results = [each.result(slots) for (_, each), slots in zip(of.aggregates, places, strict=True)]
        made = f"T({', '.join([*keys, 'a[0]', f'a[1] + {gap_us}', *results])})"
        if any(isinstance(each, Custom) for _, each in of.aggregates):
            made = f"check({made})"
        lines = [f"def row(k, a): return {made}", "def absorb(a, b):", "    a = list(a)"]
        lines += [f"    {line}" for each, slots, other in absorbing for line in each.before_absorb(slots, other)]
        lines += [f"    {line}" for each, slots, other in absorbing for line in each.absorb(slots, other)]
        lines += ["    a[0], a[1] = min(a[0], b[0]), max(a[1], b[1])", "    return a"]
        scope: dict[str, Any] = {**of.names, "T": output.record_type, "check": output.check}
        exec(compile("\n".join(lines), f"<penstock {self._errors.operation}>", "exec"), scope)
        return scope

    def _compile(self, scope: dict[str, Any], late_port: str) -> RecordForm:
        of, gap_us = self._of, self._window.size_us
        body = [*pane_source(self._window), "if t < watermark_us:", "    late_records += 1", "    late.append(r)"]
        body += ["    continue", f"k = {key_source(of.keys) if of.keys else '()'}"]
        values = ", ".join(each for group in of.of_record() for each in group)
        body += [f"b = [t, t, {values}]", "held = sessions.get(k)", "if held is None:"]
        body += ["    sessions[k] = [b]", "    op.opened(k, b)", "else:"]
        body += ["    a = held[-1]", f"    if t > a[1] + {gap_us}:"]
        body += ["        held.append(b)", "        op.opened(k, b)"]
        body += [f"    elif len(held) == 1 and t >= a[0] - {gap_us}: a[:] = absorb(a, b)"]
        body += ["    else: op.place(k, held, t, b)", "changed[k] = None"]
        self._absorb: Callable[[Session, Session], Session] = scope["absorb"]
        names = {**of.names, "op": self, "sessions": self._sessions, "changed": self._sessions.changed}
        names |= {"absorb": self._absorb, "no_time": no_time}
        before = [*watermark_source(self._window.lateness_us), "late = []"]
        sides = f"{{{late_port!r}: late}} if late else None"
        return compile_loop(
            self._errors.operation, body, names, self._errors, before=before, sides=sides, counts_late=True
        )

    def opened(self, key: Any, session: Session) -> None:
        """Take note of a new session."""
        heappush(self._ends, (session[1] + self._window.size_us, next(self._number), key, session))

    def place(self, key: Any, held: list[Session], time_us: int, single: Session) -> None:
        """Put a record into the sessions that it touches, of which there may be two; into one of its own if none."""
        gap_us = self._window.size_us
        touched = [a for a in held if a[0] - gap_us <= time_us <= a[1] + gap_us]
        if not touched:
            at = sum(a[1] < time_us for a in held)
            held.insert(at, single)
            self.opened(key, single)
            return
        # Everything that may raise comes before the first change.
        whole = touched[0]
        for other in (*touched[1:], single):
            whole = self._absorb(whole, other)
        touched[0][:] = whole
        for other in touched[1:]:
            held.remove(other)
            other.clear()

    @property
    def open_groups(self) -> int:
        """How many accumulators are held."""
        return sum(map(len, self._sessions.values()))

    def advance(self, watermark_us: int) -> Result:
        watermark_us -= self._window.lateness_us
        if watermark_us <= self.watermark_us:
            return Result([])
        self.watermark_us = watermark_us
        return self.go_on()

    @property
    def behind_us(self) -> int | None:
        is_behind = self._ends and (self._ending or self._ends[0][0] < self.watermark_us)
        return self.watermark_us + self._window.lateness_us if is_behind else None

    def go_on(self) -> Result:
        return Result(self._close(_HIGH if self._ending else self.watermark_us, self.rows_max))

    def finish(self) -> Result:
        self._ending = True
        return self.go_on()

    def _close(self, before_us: int, looks: int | None) -> list[Record]:
        """Close the sessions that end before a time, in the order of their ends; look at so many at the most."""
        ends, out, looked = self._ends, list[Record](), 0
        while ends and ends[0][0] < before_us and looked != looks:
            looked += 1
            known_us, number, key, session = heappop(ends)
            if not session:
                continue  # another one has taken it in
            end_us = session[1] + self._window.size_us
            if end_us > known_us:
                heappush(ends, (end_us, number, key, session))  # it has grown
                continue
            held = self._sessions[key]
            held[:] = [each for each in held if each is not session]
            self._sessions.changed[key] = None
            if not held:
                del self._sessions[key]
            with making_results(self._errors.operation, f"the result of the session from {session[0]} on"):
                out.append(self._row(key, session))
        return out

    def header(self) -> Any:
        return self.watermark_us

    def on_loaded(self, name: Name, key: Any, held: list[Session] | None, before: list[Session] | None) -> None:
        del name
        for session in before or ():
            session.clear()
        for session in held or ():
            self.opened(key, session)

    def caught_up(self, headers: Sequence[Any]) -> None:
        self.watermark_us = max(headers)

    def restored(self, headers: Sequence[Any]) -> None:
        self.caught_up(headers)
        gap_us = self._window.size_us
        self._ends = [(a[1] + gap_us, next(self._number), k, a) for k, held in self._sessions.items() for a in held]
        heapify(self._ends)
