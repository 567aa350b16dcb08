"""The state half of an aggregation whose results so far are sent on every so often, by event time.

A *firing* at a moment m, a multiple of the interval, is the result of all records before m: not of those that happen to
have come when the watermark passes m, among which there are later ones from partitions that are ahead. So firings
follow from what the partitions contain, and are the same in every run, in both forms and after every crash. To that end
records are kept by *panes*, as long as the interval, which divides the windows:

================================  ====================================================================================
what comes                        what is done
================================  ====================================================================================
a record, or a partial            goes into its key's accumulator of its pane. One that is behind the watermark of
                                  its own partition missed its firings: it waits with the pane that comes next there
the watermark passes a pane       those of the pane's windows that are open absorb its accumulators
at the end of that pane           every key and window that it has changed is sent on, unless the window ends there
the watermark passes an end       the window is sent on, for the last time, and forgotten
================================  ====================================================================================

A watermark that leaps over several moments fires for each of them. A key and window cost as much as without firings,
and an accumulator for each pane ahead of the watermark. Where very much is due, it leaves in parts: a few key groups
pass all moments, then the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.operators.base import RecordForm, Result, StatefulOperator
from penstock.operators.errors import Errors
from penstock.operators.keyed.aggregates import Opaque
from penstock.operators.keyed.panes import no_time, pane_source
from penstock.operators.keyed.state import KeyedState, Name, Space, making_results
from penstock.operators.keyed.windows import Global, Sliding, Window
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from penstock.operators.keyed.aggregation import Aggregation

_LOW = -(1 << 63)
_HIGH = 1 << 62


def _space(fires_us: int, pane_us: int) -> Name:
    """The space of a pane that waits for another one; one that waits for itself is named by its start."""
    return f"{fires_us} {pane_us}"


def _window_space(start: int) -> Name:
    return f"window {start}"


class FiringOperator(StatefulOperator):
    """The state of one instance: accumulators by pane and key, and by window and key what passed panes have given.

    Attributes
    ----------
    passed_us : int
        The watermark: panes that end at or before it have passed.
    """

    def __init__(
        self, of: Aggregation, window: Window, schema: Schema, output: Schema, errors: Errors, late_port: str | None
    ) -> None:
        self.passed_us = _LOW
        self._of = of
        self._window = window
        self._ends = not isinstance(window, Global)
        self._errors = errors
        self._accumulator = of.accumulator()
        self.state = KeyedState(errors.operation, several=len(of.keys) != 1, load=self._load, notes_fresh=True)
        # By space the pane that it waits for and its own; by start the windows that passed panes have given something.
        self._panes: dict[Name, tuple[int, int]] = {}
        self._windows: dict[int, Space] = {}
        # How far it passes, which spaces have something that is due, and their key groups that have not passed.
        self._until_us = _LOW
        self._due: list[Name] = []
        self._groups: list[int] | None = None
        self._row = of.compile_row(output, errors.operation)
        self._absorb = self._absorbing()
        super().__init__(self._compile(late_port), schema=schema, output=output)

    def _load(self, name: Name, key: Any, slots: list[Any]) -> Any:
        del name, key
        return self._accumulator(*slots)

    @property
    def open_groups(self) -> int:
        """How many accumulators are held."""
        return len(self.state)

    def _absorbing(self) -> Callable[[Any, Any], Any]:
        """Generate how an accumulator takes in another one, or becomes a copy of it where there is none."""
        of = self._of
        slots = [slot for places in of.kept_places for slot in places]
        names = {slot: slot.replace("a.", "x_") for slot in slots}
        # What may be changed in place goes into several windows, so each takes a copy.
        mine = {slot: slot.replace("a.", "b.") for slot in slots}
        for (_, each), places in zip(of.aggregates, of.kept_places, strict=True):
            if isinstance(each, Opaque):
                mine |= {slot: each.unpack(each.pack(mine[slot])) for slot in places}
        others = [tuple(names[slot] for slot in places) for places in of.kept_places]
        absorbing = list(zip((each for _, each in of.aggregates), of.kept_places, others, strict=True))
        lines = ["def absorb(a, b):", *(f"    {names[slot]} = {mine[slot]}" for slot in slots)]
        lines += [f"    if a is None: return A({', '.join(names.values())})"]
        lines += [f"    {line}" for each, places, other in absorbing for line in each.before_absorb(places, other)]
        lines += [f"    {line}" for each, places, other in absorbing for line in each.absorb(places, other)]
        lines += ["    return a"]
        scope: dict[str, Any] = {**of.names, "A": self._accumulator}
        exec(compile("\n".join(lines), f"<penstock {self._errors.operation}>", "exec"), scope)
        absorb: Callable[[Any, Any], Any] = scope["absorb"]
        return absorb

    def _compile(self, late_port: str | None) -> RecordForm:
        of, window, whole = self._of, self._window, late_port is not None
        body = pane_source(window) if whole else ["w = r._w"]
        if self._ends:
            count = ["late_records += 1", "late.append(r)"] if whole else ["late_records += r._n"]
            body += ["starts = windows_of(w)", "if starts[0] <= closed_us:", *(f"    {line}" for line in count)]
            body += ["    if starts[-1] <= closed_us: continue"]
        keys = of.keys if whole else of.partial_keys()
        body += [f"n = w if w + {window.pane_us} > reached_us else space_of(next_us, w)"]
        body += ["s = spaces.get(n)", "if s is None: s = open_pane(n, w, next_us)"]
        body += [f"k = {key_source(keys) if keys else '()'}"]
        body += of.accumulate("s.get(k)", "s[k]", of.of_record() if whole else of.of_partial(), kept=True)
        body += ["s.changed[k] = a"]
        before = ["reached_us = op.passed_us", "if op.straggler_us is not None:"]
        before += [f"    reached_us = max(reached_us, op.straggler_us - {window.lateness_us})"]
        before += [f"next_us = reached_us - reached_us % {window.pane_us}"]
        before += [f"closed_us = reached_us - {window.size_us}", *(["late = []"] * whole)]
        names: dict[str, object] = {
            **of.names,
            "op": self,
            "spaces": self.state.spaces,
            "open_pane": self._open_pane,
            "space_of": _space,
            "windows_of": self._starts,
            "A": self._accumulator,
            "no_time": no_time,
        }
        sides = f"{{{late_port!r}: late}} if late else None" if whole else "None"
        return compile_loop(
            self._errors.operation, body, names, self._errors, before=before, sides=sides, counts_late=self._ends
        )

    def _open_pane(self, name: Name, own_us: int, next_us: int) -> Space:
        self._panes[name] = (own_us if name == own_us else next_us, own_us)
        return self.state.open(name)

    def _starts(self, pane_us: int) -> Sequence[int]:
        """Starts of the windows that a pane is in."""
        window = self._window
        if isinstance(window, Sliding):
            return window.starts(pane_us)
        return (pane_us - pane_us % window.size_us if self._ends else 0,)

    def advance(self, watermark_us: int) -> Result:
        watermark_us -= self._window.lateness_us
        if watermark_us <= self.passed_us:
            return Result([])
        self.passed_us = watermark_us
        self._find_due(watermark_us)
        return self.go_on() if self._due else Result([])

    def finish(self) -> Result:
        self._find_due(_HIGH)
        return self.go_on() if self._due else Result([])

    def _find_due(self, until_us: int) -> None:
        """Look which spaces hold something that is due."""
        self._until_us = until_us
        due = [*self._passed_panes(), *map(_window_space, self._ended(until_us))]
        if due != self._due:
            self._due, self._groups = due, None

    def _passed_panes(self) -> list[Name]:
        before_us = self._until_us - self._window.pane_us
        return [name for name, (fires_us, _) in self._panes.items() if fires_us <= before_us]

    @property
    def behind_us(self) -> int | None:
        return self.passed_us + self._window.lateness_us if self._due else None

    def go_on(self) -> Result:
        """Let a few key groups pass all moments until the watermark; all of them at once, if they hold few entries.

        Keys have nothing to do with each other, so one may be ahead. What is due is taken out of its spaces: what they
        still hold has not been sent.
        """
        out: list[Record] = []
        rows_max = self.rows_max
        if self._groups is None:
            spaces = [self.state.spaces[name] for name in self._due]
            if rows_max is None or sum(map(len, spaces)) <= rows_max:
                self._pass(out, None)
                self._due = []
                return Result(out)
            self._groups = list({group: None for name in self._due for group in self.state.groups_in(name)})
        while self._groups and (rows_max is None or len(out) < rows_max):
            self._pass(out, self._groups.pop())
        if not self._groups:
            self._drop_passed()
        return Result(out)

    def _drop_passed(self) -> None:
        """All groups have passed: forget the spaces that held what was due."""
        for name in self._passed_panes():
            self.state.drop(name)
            del self._panes[name]
        for start in self._ended(self._until_us):
            self.state.drop(_window_space(start))
            del self._windows[start]
        self._due, self._groups = [], None

    def _ended(self, until_us: int) -> list[int]:
        """Windows that have ended, in order of time; one that never ends does so with the input."""
        length_us = self._window.size_us if self._ends else _HIGH
        return sorted(start for start in self._windows if start + length_us <= until_us)

    def _pass(self, out: list[Record], group: int | None) -> None:
        """Everything that is due until the watermark, moment by moment; of one key group, or of all."""
        pane_us = self._window.pane_us
        due = [(self._panes[name][0] + pane_us, self._panes[name][1], name) for name in self._passed_panes()]
        passed = sorted(due, key=lambda each: each[:2])
        for moment_us, panes in groupby(passed, key=lambda each: each[0]):
            self._close(moment_us - 1, out, group)
            touched: dict[tuple[int, Any], None] = {}
            for _, own_us, name in panes:
                self._take_in(name, own_us, moment_us, touched, group)
            for start, key in touched:
                if not self._ends or start + self._window.size_us > moment_us:
                    self._send(start, start if self._ends else moment_us, [(key, self._windows[start][key])], out)
        self._close(self._until_us, out, group)

    def _taken(self, name: Name, group: int | None) -> list[tuple[Any, Any]]:
        """Take the entries of a key group out of a space, or all of them with the space."""
        if group is not None:
            return self.state.take_group(name, group)
        entries = list(self.state.spaces[name].items())
        self.state.drop(name)
        return entries

    def _take_in(
        self, name: Name, own_us: int, moment_us: int, touched: dict[tuple[int, Any], None], group: int | None
    ) -> None:
        """Merge a pane that has passed into its windows."""
        entries = self._taken(name, group)
        if group is None:
            del self._panes[name]
        for start in self._starts(own_us) if entries else ():
            if self._ends and start + self._window.size_us < moment_us:
                continue  # it had closed when the records came: they were late for it
            space = self._windows.get(start)
            if space is None:
                space = self._windows[start] = self.state.open(_window_space(start))
            assert space.fresh is not None
            for key, slots in entries:
                held = space.get(key)
                with making_results(self._errors.operation, f"the result of window {start}"):
                    space[key] = space.changed[key] = self._absorb(held, slots)
                if held is None:
                    space.fresh.append(key)
                touched[start, key] = None

    def _close(self, until_us: int, out: list[Record], group: int | None) -> None:
        """Send on the windows that have ended, in order of time, and forget them."""
        for start in self._ended(until_us):
            entries = self._taken(_window_space(start), group)
            if group is None:
                del self._windows[start]
            if self._ends:
                self._send(start, start, entries, out)

    def _send(self, start: int, shown_us: int, entries: list[tuple[Any, Any]], out: list[Record]) -> None:
        with making_results(self._errors.operation, f"the result of window {start}"):
            out += [self._row(key, shown_us, slots) for key, slots in entries]

    def header(self) -> Any:
        return self.passed_us

    def restored(self, headers: Sequence[Any]) -> None:
        self.passed_us = max(headers)
        for name, space in self.state.spaces.items():
            if isinstance(name, int):
                self._panes[name] = (name, name)
                continue
            first, _, second = name.partition(" ")
            if first == "window":
                self._windows[int(second)] = space
            else:
                self._panes[name] = (int(first), int(second))
        self._find_due(self.passed_us)
