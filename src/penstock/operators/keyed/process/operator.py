"""A keyed process function at work: records go through a generated loop, timers through the same handlers' rules.

====================  =================================================================================================
event                 effect
====================  =================================================================================================
records come          late ones go to a port of their own; the others to ``on_record`` of their key, one by one, or
                      those of a key together to ``on_batch``; in the order of time they wait
event time comes to   timers up to W fire in the order of time, also those that are set meanwhile, and records that wait
W                     before W have their turn among them; then keys whose time to live is over are forgotten
the clock comes to T  clock timers up to T fire, in order; then the same where there is no event time
a handler raises      policy *fail*: the job fails. Else what it has done to its key and sent is undone, and the policy
                      has the record (or the timer, as a record of key and time)
an alternative fails  everything is undone since its records, event time or the clock came
the input has ended   all timers fire: those of event time, in order, then those of the clock; nothing is kept
a marker comes        states, timers and the watermark are stored: what has fired before it is in, what has not is out
====================  =================================================================================================
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

from penstock.errors import BadRecord, PenstockError
from penstock.metrics.times import sooner
from penstock.operators.base import RecordForm, Result, StatefulOperator, result_of
from penstock.operators.errors import ErrorPolicy, Errors, Failures
from penstock.operators.keyed.match_once import watermark_source
from penstock.operators.keyed.process.declared import Layout, State
from penstock.operators.keyed.process.function import Context, Process
from penstock.operators.keyed.process.operation import Processing
from penstock.operators.keyed.process.table import Spaces, Table
from penstock.operators.keyed.process.waiting import Waiting
from penstock.operators.keyed.reduce import LATE
from penstock.operators.keyed.state import making_results
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.types import Record, Schema, attribute

LOW_US = -(1 << 63)
ENDING_TIMERS_MAX = 1_000
"""Timers that fire for one key after the stream has ended, at the most."""
FOREVER_US = 1 << 63
_TIMER = Schema.parse("key string, timer timestamp")


class ProcessOperator(StatefulOperator):
    """One instance: the keys' states, and the handlers.

    Attributes
    ----------
    watermark_us : int
        Records before this time are late; timers up to it have fired.
    has_event_time : bool
        Whether timers can wait for event time.
    """

    follows_clock = True
    hears_loading = True

    def __init__(self, of: Processing, schema: Schema, errors: Errors) -> None:
        self.watermark_us = LOW_US
        self.has_event_time = of.time is not None
        self._of = of
        self._errors = errors
        shared, kind, layout = _opened(of.function, errors.operation)
        self._shared, self._kind = shared, kind
        self.table = Table(kind, layout, errors.operation, several=len(of.keys) != 1)
        self.state = self.table.state
        coerces = {name: each.coerce for name, each in of.outputs}
        self.ctx = Context(self, of.output.coerce, coerces)
        self._on_timer = _handler(kind, "on_timer")
        self._on_clock = _handler(kind, "on_clock")
        self._on_record = _handler(kind, "on_record")
        self._on_batch: Callable[..., Any] | None = _handler(kind, "on_batch")
        self._fails = errors.policy is ErrorPolicy.FAIL
        self._before_block_us = self.watermark_us
        self._fired: dict[Any, int] = {}
        """How many timers each key has fired since the end."""
        self._times: Callable[[Record], int] | None = None
        if of.time is not None and layout.ttls_us:
            self._times = attrgetter(attribute(of.time))
        self._key: Callable[[Record], Any] = attrgetter(*map(attribute, of.keys))
        self._waiting = Waiting(of.time, of.keys, schema, self.table.waiting) if of.time and of.by_time else None
        super().__init__(self._compiled(), schema=schema, output=of.output)

    def _compiled(self) -> RecordForm:
        if self._waiting is not None:
            return self._arranging(self._waiting, self._errors)
        return self._compile(self._errors) if self._on_batch is None else self._grouping(self._errors)

    # --- exchange -----------------------------------------------------------------------------------------------------

    def take_over(self, other: StatefulOperator) -> bool:
        if not isinstance(other, ProcessOperator) or not other.table.become(self._kind):
            return super().take_over(other)
        # Not a copy: the keys' objects are of this function's class from now on.
        self.table, self.state, self._waiting = other.table, other.state, other._waiting
        self.watermark_us = other.watermark_us
        self.process = self._compiled()
        return True

    def take_converted(self, other: StatefulOperator, convert: Callable[[Any, Any], Any]) -> None:
        assert isinstance(other, ProcessOperator)
        with making_results(self._errors.operation, "a state, converted"):
            self.table.take_converted(other.table, convert)
        self.watermark_us = other.watermark_us
        if self._waiting is not None:
            self._waiting.arrange()

    def begin(self, *, undoable: bool) -> None:
        self.table.journal = {} if undoable else None
        self._before_block_us = self.watermark_us
        if self._waiting is not None:
            self._waiting.begin(undoable=undoable)

    def undo(self) -> bool:
        self.table.undo()
        self.watermark_us = self._before_block_us
        if self._waiting is not None:
            self._waiting.undo()
        return True

    # --- records ------------------------------------------------------------------------------------------------------

    def _compile(self, errors: Errors) -> RecordForm:
        of, table, names = self._of, self.table, self._names()
        body = [*self._arrival(), "o = objects.get(k)", "if o is None: o = make(k)"]
        if table.layout.ttls_us:
            body.append(f"touch(k, o, {'t' if of.time is not None else 'ctx.now_us'})")
        body += ["changed[k] = None", "ctx.key = k"]
        if errors.passing is not None:
            body.insert(len(self._arrival()), "note(k)")
        if errors.policy is not ErrorPolicy.FAIL:
            body = [*self._arrival(), "attempt(k, r)"]
        elif inspect.isgeneratorfunction(self._on_record):
            body.append("for v in on_record(o, r, ctx): append(coerce(v))")
        else:
            body += ["v = on_record(o, r, ctx)", "if v is not None: take(v)"]
        return compile_loop(
            errors.operation,
            body,
            {**names, "on_record": self._on_record, "coerce": of.output.coerce},
            errors,
            before=self._before(),
            after=self._after(),
            sides="sides or None",
            counts_late=of.time is not None,
        )

    def _arranging(self, waiting: Waiting, errors: Errors) -> RecordForm:
        """The loop only puts records aside: event time brings their turn."""
        names = {**self._names(), "wait": waiting.add}
        body = [*self._arrival(), "wait(r)"]
        return compile_loop(
            errors.operation, body, names, errors, before=self._before(), sides="sides or None", counts_late=True
        )

    def _grouping(self, errors: Errors) -> RecordForm:
        """The loop sorts records by key; then each key has its own, together."""
        body = [*self._arrival(), "held = groups.get(k)", "if held is None: groups[k] = [r]", "else: held.append(r)"]
        before = [*self._before(), "groups = {}"]
        after = ["failures = op.take_groups(groups, rows, failures)", *self._after()]
        return compile_loop(
            errors.operation,
            body,
            self._names(),
            errors,
            before=before,
            after=after,
            sides="sides or None",
            counts_late=self._of.time is not None,
        )

    def _names(self) -> dict[str, object]:
        table = self.table
        return {
            "op": self,
            "ctx": self.ctx,
            "objects": table.objects,
            "make": table.make,
            "changed": table.objects.changed,
            "touch": table.touch,
            "note": table.note,
            "attempt": self._attempt,
            "take": self._take,
        }

    def _arrival(self) -> list[str]:
        of = self._of
        if of.time is None:
            return [f"k = {key_source(of.keys)}"]
        late = ["if t < watermark_us:", "    late_records += 1", f"    sides.setdefault({LATE!r}, []).append(r)"]
        return [f"t = r.{attribute(of.time)}", *late, "    continue", f"k = {key_source(of.keys)}"]

    def _before(self) -> list[str]:
        watermark = watermark_source(0) if self._of.time is not None else []
        return ["sides = {}", "ctx._out, ctx._sides, ctx.now_us, ctx.at_us = out, sides, op.now_us, None", *watermark]

    def _after(self) -> list[str]:
        # A timer for a time that has passed does not wait for event time to move on.
        return ["failures = op.fire_passed(failures)"] if self._of.time is not None else []

    def take_groups(
        self, groups: dict[Any, list[Record]], rows: list[Record], failures: Failures | None
    ) -> Failures | None:
        """Give every key its records together; where that fails, one by one, to find the bad one."""
        for key, records in groups.items():
            for piece in self._pieces(key, records):
                saved, at, sent = self.table.save(key), len(self.ctx._out), _sizes(self.ctx._sides)
                try:
                    self._call(key, self._on_batch, piece, self._time_of(piece[0]))
                except Exception:
                    self.table.put_back(saved)
                    del self.ctx._out[at:]
                    _cut(self.ctx._sides, sent)
                    failures = self._one_by_one(key, piece, rows, failures)
        return failures

    def _pieces(self, key: Any, records: list[Record]) -> Iterator[list[Record]]:
        """A key's records, parted where a state of it expires between two of them."""
        times = self._times
        if times is None:
            yield records
            return
        ttl_us, seen_us = self.table.layout.ttls_us[0], self.table.seen.get(key, LOW_US)
        start = 0
        for i, record in enumerate(records):
            time_us = times(record)
            if i > start and time_us - seen_us > ttl_us:
                yield records[start:i]
                start = i
            # Each piece is seen at its first record's time; a later one in it counts when the next piece begins.
            seen_us = max(seen_us, time_us)
        yield records[start:]

    def _one_by_one(
        self, key: Any, records: list[Record], rows: list[Record], failures: Failures | None
    ) -> Failures | None:
        for record in records:
            while True:
                try:
                    self._attempt(key, record)
                except Exception as error:
                    failures = failures or self._errors.begin()
                    index = next(i for i, each in enumerate(rows) if each is record)
                    if failures.handle(record, error, index):
                        continue
                break
        return failures

    def _attempt(self, key: Any, record: Record) -> None:
        """Have a key take one record, or nothing of it where it raises."""
        if self._on_record is None:
            self._undone(key, self._on_batch, [record], self._time_of(record))
        else:
            self._undone(key, self._on_record, record, self._time_of(record))

    def _undone(self, key: Any, handler: Any, argument: Any, time_us: int) -> None:
        ctx, out, sides = self.ctx, self.ctx._out, self.ctx._sides
        saved = self.table.save(key)
        ctx._out, ctx._sides = [], {}
        try:
            self._call(key, handler, argument, time_us)
        except Exception:
            self.table.put_back(saved)
            raise
        else:
            out += ctx._out
            for port, rows in ctx._sides.items():
                sides.setdefault(port, []).extend(rows)
        finally:
            ctx._out, ctx._sides = out, sides

    def _call(self, key: Any, handler: Any, argument: Any, time_us: int) -> None:
        table = self.table
        if table.journal is not None:
            table.note(key)
        held = table.objects.get(key)
        if held is None:
            held = table.make(key)
        if table.layout.ttls_us:
            table.touch(key, held, time_us)
            if self._times is not None and isinstance(argument, list):
                table.seen[key] = max(table.seen[key], *map(self._times, argument))
                table.seen.changed[key] = None
        table.objects.changed[key] = None
        self.ctx.key = key
        value = handler(held, argument, self.ctx)
        if value is not None:
            self._take(value)

    def _take(self, value: Any) -> None:
        """Send on what a handler has returned: any number of records, or one."""
        out, coerce = self.ctx._out, self._of.output.coerce
        if isinstance(value, list | Iterator):
            for each in value:
                out.append(coerce(each))
        else:
            out.append(coerce(value))

    def _time_of(self, record: Record) -> int:
        return self._times(record) if self._times is not None else self.ctx.now_us

    # --- time ---------------------------------------------------------------------------------------------------------

    def advance(self, watermark_us: int) -> Result:
        if not self.has_event_time or watermark_us <= self.watermark_us:
            return Result([])
        self.watermark_us = watermark_us
        made = self._fire(watermark_us, LOW_US)
        if self.table.layout.ttls_us:
            self.table.sweep(watermark_us)
        return made

    def fire(self, now_us: int) -> Result:
        made = self._fire(LOW_US, now_us)
        if self.table.layout.ttls_us and not self.has_event_time:
            self.table.sweep(now_us)
        return made

    @property
    def wake_us(self) -> int | None:
        table = self.table
        return sooner(table.clock_timers.next_us(), None if self.has_event_time else table.next_age_us())

    def fire_passed(self, failures: Failures | None) -> Failures | None:
        """Fire the timers that were set for a time that has passed."""
        heap = self.table.timers.heap
        if heap and heap[0][0] <= self.watermark_us:
            for at_us, key in self.table.timers.due(self.watermark_us):
                failures = self._fire_one(at_us, key, self._on_timer, failures)
        return failures

    def _fire(self, watermark_us: int, now_us: int, *, ending: bool = False) -> Result:
        """Have all timers up to these times fire; where records wait for their turn, each has its place among them."""
        ctx, table = self.ctx, self.table
        out: list[Record] = []
        sides: dict[str, list[Record]] = {}
        ctx._out, ctx._sides, ctx.now_us, ctx.ending = out, sides, self.now_us, ending
        self._fired.clear()
        failures: Failures | None = None
        try:
            if self._waiting is not None:
                failures = self._in_order(self._waiting, watermark_us, failures)
            for at_us, key in table.timers.due(watermark_us):
                failures = self._fire_one(at_us, key, self._on_timer, failures)
            for at_us, key in table.clock_timers.due(now_us):
                failures = self._fire_one(at_us, key, self._on_clock, failures)
        finally:
            ctx.at_us, ctx.ending = None, False
        if failures is not None:
            return result_of(out, sides, failures)
        return Result(out, sides or None)

    def _in_order(self, waiting: Waiting, until_us: int, failures: Failures | None) -> Failures | None:
        """Take the records that event time has passed, and the timers before each; at one time timers come first."""
        timers = self.table.timers
        while (time_us := waiting.next_us(until_us)) is not None:
            for at_us, key in timers.due(time_us):
                failures = self._fire_one(at_us, key, self._on_timer, failures)
            record = waiting.pop()
            failures = self._one_by_one(self._key(record), [record], [record], failures)
        return failures

    def _fire_one(self, at_us: int, key: Any, handler: Any, failures: Failures | None) -> Failures | None:
        ctx, table = self.ctx, self.table
        ctx.at_us = at_us if handler is self._on_timer else None
        if table.journal is not None and key not in table.journal:
            table.note(key)
            saved = table.journal[key]
            (saved.timers if handler is self._on_timer else saved.clock_timers).add(at_us)  # it was waiting for this
        if ctx.ending:
            fired = self._fired[key] = self._fired.get(key, 0) + 1
            if fired > ENDING_TIMERS_MAX:
                raise PenstockError(
                    f"the stream has ended, and key {key!r} goes on setting timers.",
                    operation=self._errors.operation,
                    hint="At the end all timers fire: set none where ctx.ending is true.",
                )
        while True:
            try:
                if handler is None:
                    hint = "Define on_timer for event time, on_clock for the clock."
                    raise BadRecord(f"a timer of key {key!r} has no handler.", hint=hint)
                if self._fails:
                    self._call(key, handler, at_us, at_us)
                else:
                    self._undone(key, handler, at_us, at_us)
            except Exception as error:
                failures = failures or self._errors.begin()
                if failures.handle(_TIMER.record_type(str(key), at_us), error, 0):
                    continue
            break
        ctx.at_us = None
        return failures

    def finish(self) -> Result:
        made = self._fire(FOREVER_US, FOREVER_US, ending=True)
        self.table.clear()
        return made

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def header(self) -> Any:
        return self.watermark_us, self.table.header()

    def prepare_next(self, header: Any) -> None:
        _, layouts = header
        self.table.prepare([layouts])

    def on_loaded(self, name: Any, each: Any, value: Any, before: Any) -> None:
        if name == Spaces.WAITING.value and self._waiting is not None:
            self._waiting.loaded(each, value, before)
        else:
            self.table.loaded(name, each, value, before)

    def caught_up(self, headers: Sequence[Any]) -> None:
        self.watermark_us = max(watermark_us for watermark_us, _ in headers)
        self.table.prepare([layouts for _, layouts in headers])

    def restored(self, headers: Sequence[Any]) -> None:
        self.caught_up(headers)
        self.table.restored([layouts for _, layouts in headers])
        if self._waiting is not None:
            self._waiting.restored()

    def close(self) -> None:
        close = getattr(self._shared, "close", None)
        if close is not None:
            with suppress(Exception):  # the instance is over, whatever it says
                close()


def _opened(function: Process, operation: str) -> tuple[Process, type, Layout]:
    """Open a copy of the user's object, and make the class of the keys' objects, whose attributes all of them share."""
    layout = Layout.of(function)
    shared = copy.copy(function)
    for name in layout.names:
        vars(shared).pop(name, None)
    try:
        shared.open()
    except Exception as error:
        raise PenstockError(f"open() has failed: {type(error).__name__}: {error}.", operation=operation) from error
    defaults = {name: each.default for name, each in layout.states.items() if each.is_shared}
    common = {name: held for name, held in vars(shared).items() if not isinstance(held, State)}
    kind = type(
        type(function).__name__, (type(function),), {**common, **defaults, "__module__": type(function).__module__}
    )
    return shared, kind, layout


def _handler(kind: type, name: str) -> Any:
    """A handler that the user's class has; None where it has none."""
    found = getattr(kind, name, None)
    return None if found is getattr(Process, name, None) else found


def _sizes(sides: dict[str, list[Record]]) -> dict[str, int]:
    return {port: len(rows) for port, rows in sides.items()}


def _cut(sides: dict[str, list[Record]], sizes: dict[str, int]) -> None:
    for port, rows in list(sides.items()):
        del rows[sizes.get(port, 0) :]
        if not rows:
            del sides[port]
