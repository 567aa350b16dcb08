"""Windows by number of records: each holds the next so many records of a key; and what owns their state.

Which record is the next one is settled in one of two ways. With a time column it is the order of event time (at equal
times that of the other columns, nulls first): records wait until the watermark has passed them, one that is behind it
is late, and the results are those of a sort, in every run. Without one it is the order of arrival, which a replay
keeps within each source partition, and nobody promises between partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.checks import Whole
from penstock.durations import format_us, parse_us
from penstock.errors import InvalidOption
from penstock.operators.base import RecordForm, Result, StatefulOperator
from penstock.operators.errors import Errors
from penstock.operators.keyed.aggregates import Custom
from penstock.operators.keyed.match_once import order_source, watermark_source
from penstock.operators.keyed.state import KeyedState, Name, making_results, read_record
from penstock.operators.keyed.windows import OVERLAP_MAX, Global, check_time
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.types import BIGINT, Field, Record, Schema, attribute

if TYPE_CHECKING:
    from penstock.operators.keyed.aggregation import Aggregation

COUNT_MAX = 1_000_000_000
_LOW = -(1 << 63)
_HIGH = 1 << 63
_SLOTS = 1
"""A window that is open is a list: the number of its first record, then the slots of the aggregates."""
Opened = list[Any]
Held = list[Any]
"""Of a key: how many records it has had, its open windows, and by number the records that wait for the watermark."""


@dataclass(frozen=True)
class CountWindow:
    """Windows of ``size`` records of a key, one beginning at every ``slide``-th; see `count_window`.

    Attributes
    ----------
    size : int or None
        None: one window that never ends, whose value so far is sent on after every ``slide`` records.
    """

    size: int | None
    slide: int
    on: str | None = None
    lateness_us: int = 0

    @property
    def fields(self) -> tuple[Field, ...]:
        """Columns that it adds to its results."""
        return () if self.size is None else (Field("window_number", BIGINT, False),)

    def check(self, schema: Schema) -> None:
        """Check that the time column is one."""
        if self.on is not None:
            check_time(schema, self.on, "the window's time column")

    def __str__(self) -> str:
        records = f"every {self.slide} records" if self.size is None else f"windows of {self.size} records"
        sliding = f" every {self.slide}" if self.size not in (None, self.slide) else ""
        late = format_us(self.lateness_us) if self.lateness_us else "0"
        return f"{records}{sliding} {f'in the order of {self.on}, lateness {late}' if self.on else 'as they come'}"


def count_window(
    size: int, *, slide: int | None = None, on: str | None = None, lateness: str | float = 0
) -> CountWindow:
    """Windows of so many records of a key.

    Results have the column ``window_number`` after the key: 0 for the first window of the key, and so on. A window is
    sent on when it is full. When the input ends, or a job without a checkpoint drains, those that are open are sent on
    with what they have.

    Parameters
    ----------
    size : int
        How many records.
    slide : int, optional
        A window begins at every record whose place among those of its key is a multiple of this: at most the size, and
        at least a thousandth of it. Default: the size, so that each record is in one window.
    on : str, optional
        A timestamp column: records are taken in the order of their times, once the watermark has passed them, and one
        that is behind the watermark of its own partition is late. The results are the same in every run. Without it
        they are taken in the order in which they come.
    lateness : str or number
        With ``on``, as for :func:`tumbling`.

    Examples
    --------
    >>> import penstock as ps
    >>> clicks = ps.stream("clicks", ps.records([("a", 1), ("a", 2), ("a", 5)], schema="user string, n int"))
    >>> clicks.key_by("user").window(ps.count_window(2)).sum("n").take()
    [{'user': 'a', 'window_number': 0, 'sum': 3}, {'user': 'a', 'window_number': 1, 'sum': 5}]
    """
    records = Whole(1, COUNT_MAX).read("size", size)
    step = records if slide is None else Whole(1, COUNT_MAX).read("slide", slide)
    if not records <= step * OVERLAP_MAX <= records * OVERLAP_MAX:
        allowed = f"at most the size, {records}, and at least 1/{OVERLAP_MAX} of it"
        raise InvalidOption(option="slide", given=slide, allowed=allowed)
    return CountWindow(records, step, *_in_order(on, lateness))


def global_window(*, every: str | int, on: str | None = None, lateness: str | float = 0) -> Global | CountWindow:
    """One window that never ends, whose value so far is sent on every so often: by event time, or by records.

    With a duration, the value of each key that has changed is sent on when the watermark passes a multiple of it: as it
    is for the records before that moment, which is in the column ``window_end``. No record is late: one that is behind
    the watermark is in the next value. With a number, the value is sent on after every so many records of a key. What
    has not been sent on when the input ends is sent on then. Every key is held for as long as the job runs.

    Parameters
    ----------
    every : str or int
        A duration such as ``"5s"``, or a number of records.
    on : str
        The timestamp column; with a number, as for :func:`count_window`.
    lateness : str or number
        As for :func:`tumbling`.

    Examples
    --------
    >>> import penstock as ps
    >>> clicks = ps.stream("clicks", ps.records([(1_000_000,), (6_000_000,)], schema="at timestamp"))
    >>> clicks.window(ps.global_window(every="5s", on="at")).count().take()
    [{'window_end': 5000000, 'count': 1}, {'window_end': 10000000, 'count': 2}]
    """
    if isinstance(every, int):
        return CountWindow(None, Whole(1, COUNT_MAX).read("every", every), *_in_order(on, lateness))
    every_us = parse_us(every, option="every")
    if on is None:
        raise InvalidOption(option="on", given=on, allowed="the timestamp column")
    return Global(every_us, on, parse_us(lateness, option="lateness", allow_zero=True))


def _in_order(on: str | None, lateness: str | float) -> tuple[str | None, int]:
    """Read the options that say in which order records are taken."""
    lateness_us = parse_us(lateness, option="lateness", allow_zero=True)
    if on is None and lateness_us:
        raise InvalidOption(option="lateness", given=lateness, allowed="together with on, the timestamp column")
    return on, lateness_us


class CountOperator(StatefulOperator):
    """The state of one instance: for each key how many records it has had, its open windows, and records that wait.

    Attributes
    ----------
    watermark_us : int
        Records before this time are late.
    """

    hears_loading = True

    def __init__(self, of: Aggregation, counts: CountWindow, schema: Schema, errors: Errors) -> None:
        self.watermark_us = _LOW
        self._of = of
        self._counts = counts
        self._errors = errors
        self.state = KeyedState(errors.operation, several=len(of.keys) != 1, load=self._load)
        self._held = self.state.open()
        self._ahead: list[tuple[Any, ...]] = []
        self._numbers = count()
        output = of.bind(schema)
        scope = self._helpers(schema, output)
        self._row: Callable[[Any, int, Opened], Record] = scope["row"]
        self._single: Callable[[int, Record], Opened] = scope["single"]
        self._absorb: Callable[[Opened, Opened], Opened] = scope["absorb"]
        self._order: Callable[[Record], tuple[Any, ...]] = scope["order"]
        super().__init__(self._compile(scope), schema=schema, output=output)

    def _load(self, name: Name, key: Any, held: Held) -> Held:
        del name, key
        seen, opened, waiting = held
        return [seen, opened, {number: read_record(self._schema.record_type, row) for number, row in waiting.items()}]

    def _helpers(self, schema: Schema, output: Schema) -> dict[str, Any]:
        """Generate how a record begins a window, how a window takes it in, and how a result is made."""
        of = self._of
        places, others = of.slot_places(_SLOTS), of.slot_places(_SLOTS, "b")
        absorbing = list(zip((each for _, each in of.aggregates), places, others, strict=True))
        keys = ["k" if len(of.keys) == 1 else "*k"] if of.keys else []
        results = [each.result(slots) for (_, each), slots in zip(of.aggregates, places, strict=True)]
        made = f"T({', '.join([*keys, *(['w'] if self._counts.size is not None else []), *results])})"
        if any(isinstance(each, Custom) for _, each in of.aggregates):
            made = f"check({made})"
        values = ", ".join(each for group in of.of_record() for each in group)
        scope: dict[str, Any] = {**of.names, "T": output.record_type, "check": output.check}
        order = order_source([(f"r.{attribute(field.name)}", field.type) for field in schema.fields], scope)
        lines = [f"def row(k, w, a): return {made}", f"def single(n, r): return [n, {values}]"]
        lines += ["def absorb(a, b):", "    a = list(a)"]
        lines += [f"    {line}" for each, slots, other in absorbing for line in each.before_absorb(slots, other)]
        lines += [f"    {line}" for each, slots, other in absorbing for line in each.absorb(slots, other)]
        lines += ["    return a", f"def order(r): return ({order})", f"def key(r): return {self._key_source}"]
        exec(compile("\n".join(lines), f"<penstock {self._errors.operation}>", "exec"), scope)
        return scope

    @property
    def _key_source(self) -> str:
        return key_source(self._of.keys) if self._of.keys else "()"

    def _compile(self, scope: dict[str, Any]) -> RecordForm:
        on = self._counts.on
        body, before = [], []
        if on is not None:
            before = watermark_source(self._counts.lateness_us)
            body += [f"t = r.{attribute(on)}", "if t < watermark_us:", "    late_records += 1", "    continue"]
        body += [f"k = {self._key_source}", "h = held.get(k)"]
        # What may raise comes before the first change, so that a bad record leaves nothing behind.
        body += ["if h is None: h = [0, [], {}]"]
        body += ["op.add(k, h, r, out)"] if on is None else ["op.wait(k, h, r, t)"]
        body += ["held[k] = h", "changed[k] = None"]
        names = {"op": self, "held": self._held, "changed": self._held.changed}
        late = on is not None
        return compile_loop(self._errors.operation, body, names, self._errors, before=before, counts_late=late)

    def add(self, key: Any, held: Held, record: Record, out: list[Record]) -> None:
        """Take the next record of a key: into its open windows, and into one that begins with it."""
        counts, seen, opened = self._counts, held[0], held[1]
        taken = [self._absorb(each, self._single(seen, record)) for each in opened]
        if seen % counts.slide == 0 if counts.size is not None else not opened:
            taken.append(self._single(seen, record))
        seen += 1
        if counts.size is None:
            if seen % counts.slide == 0:
                out.append(self._row(key, 0, taken[0]))
        elif seen - taken[0][0] == counts.size:
            out.append(self._row(key, taken[0][0] // counts.slide, taken[0]))
            del taken[0]
        held[0], held[1] = seen, taken

    def wait(self, key: Any, held: Held, record: Record, time_us: int) -> None:
        """Hold a record until the watermark has passed it."""
        number = next(self._numbers)
        held[2][number] = record
        heappush(self._ahead, (time_us, self._order(record), number, key))

    @property
    def held_records(self) -> int:
        """How many records wait."""
        return len(self._ahead)

    def advance(self, watermark_us: int) -> Result:
        watermark_us -= self._counts.lateness_us
        if self._counts.on is None or watermark_us <= self.watermark_us:
            return Result([])
        self.watermark_us = watermark_us
        return Result(self._take_before(watermark_us))

    def _take_before(self, time_us: int) -> list[Record]:
        out: list[Record] = []
        ahead, changed = self._ahead, self._held.changed
        while ahead and ahead[0][0] < time_us:
            *_, number, key = heappop(ahead)
            held = self._held.get(key)
            if held is None or number not in held[2]:
                continue  # of a state that was loaded, and has changed since
            with making_results(self._errors.operation, f"the windows of {key!r}"):
                self.add(key, held, held[2].pop(number), out)
            changed[key] = None
        return out

    def finish(self) -> Result:
        out = self._take_before(_HIGH)
        counts = self._counts
        for key, (seen, opened, _) in self._held.items():
            if counts.size is None and seen % counts.slide == 0:
                continue  # its last value has been sent on
            for each in opened:
                with making_results(self._errors.operation, f"the windows of {key!r}"):
                    out.append(self._row(key, each[0] // counts.slide, each))
        self._held.changed.update(dict.fromkeys(self._held))
        self._held.clear()
        return Result(out)

    def header(self) -> Any:
        return self.watermark_us

    def on_loaded(self, name: Name, key: Any, held: Held | None, before: Held | None) -> None:
        del name, before
        if held is not None:
            on, waiting = attribute(self._counts.on or ""), sorted(held[2].items())
            held[2] = {}
            for _, row in waiting:
                self.wait(key, held, row, getattr(row, on))

    def caught_up(self, headers: Sequence[Any]) -> None:
        self.watermark_us = max(headers)

    def restored(self, headers: Sequence[Any]) -> None:
        self.caught_up(headers)
        on = attribute(self._counts.on or "")
        for key, held in self._held.items():
            held[2] = waiting = {next(self._numbers): row for _, row in sorted(held[2].items())}
            self._ahead += [(getattr(row, on), self._order(row), number, key) for number, row in waiting.items()]
        heapify(self._ahead)
