"""What users write: a class with states and handlers (`Process`), and what its handlers are given (`Context`)."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.durations import parse_us
from penstock.errors import BadRecord, InvalidOption
from penstock.types import Record

if TYPE_CHECKING:
    from penstock.operators.keyed.process.operator import ProcessOperator

TimeLike = int | datetime
SpanLike = str | int | float | timedelta


class Process:
    """A function of the records of each key, with state and timers of its own.

    Inside a handler ``self`` is one key: what is declared with ``ps.state`` is that key's, everything else that
    ``__init__`` or :meth:`open` has set is shared by all keys of the instance. Handlers yield records of the output, or
    return one or a list of them, or call ``ctx.emit``.

    Examples
    --------
    >>> class Fraud(ps.Process):                                              # doctest: +SKIP
    ...     last = ps.state.value(float, default=0.0)
    ...     def on_record(self, record, ctx):
    ...         if record.amount > 10 * self.last > 0:
    ...             yield {"card": record.card, "amount": record.amount}
    ...         self.last = record.amount
    >>> payments.key_by("card").process(Fraud, schema="card string, amount double")  # doctest: +SKIP
    """

    def open(self) -> None:
        """Called once on every worker, before the first record: load a model, open a connection."""

    def on_record(self, record: Record, ctx: Context) -> Any:
        """Take one record of this key."""
        raise NotImplementedError

    def on_timer(self, at_us: int, ctx: Context) -> Any:
        """Event time has reached a moment that ``ctx.set_timer`` was called with."""
        raise NotImplementedError

    def on_clock(self, at_us: int, ctx: Context) -> Any:
        """The clock has reached a moment that ``ctx.set_clock_timer`` was called with."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the instance ends or is built anew; not when its process is lost."""


class Context:
    """What a handler can do beside changing its state.

    Attributes
    ----------
    key : object
        The key; a tuple where it has several columns.
    watermark_us : int
        How far event time has come for all inputs. It depends on timing, unlike the records and the timers.
    now_us : int
        The clock when these records were taken, in microseconds since the epoch.
    ending : bool
        The stream has ended: timers fire whose time has not come.
    """

    __slots__ = ("_coerce", "_coerces", "_operator", "_out", "_sides", "at_us", "ending", "key", "now_us")

    def __init__(self, operator: ProcessOperator, coerce: Any, coerces: dict[str, Any]) -> None:
        self.key: Any = None
        self.now_us = 0
        self.ending = False
        self.at_us: int | None = None
        self._operator = operator
        self._coerce = coerce
        self._coerces = coerces
        self._out: list[Record] = []
        self._sides: dict[str, list[Record]] = {}

    @property
    def watermark_us(self) -> int:
        return self._operator.watermark_us

    def emit(self, record: Any) -> None:
        """Send a record on: a dict, a tuple or a record of the output's schema."""
        self._out.append(self._coerce(record))

    def output(self, name: str, record: Any) -> None:
        """Send a record to another output, which ``outputs=`` of `process` names."""
        coerce = self._coerces.get(name)
        if coerce is None:
            raise InvalidOption(
                option="output", given=name, allowed=", ".join(self._coerces) or "nothing: give process(…, outputs={…})"
            )
        self._sides.setdefault(name, []).append(coerce(record))

    def set_timer(self, at: TimeLike, after: SpanLike = 0) -> None:
        """Have ``on_timer`` called for this key when event time has passed ``at``, or ``after`` that.

        Timers of a key fire in the order of time, those that are set for one moment once. One that is set for a time
        that has passed fires with the next records.
        """
        operator = self._operator
        if not operator.has_event_time:
            raise BadRecord(
                "there is no event time, so no timer can wait for it.",
                hint='Declare it, with_watermark("at", "1s") or process(…, time="at"), or use set_clock_timer().',
            )
        at_us = moment_us(at) + (span_us(after) if after else 0)
        if self.at_us is not None and at_us <= self.at_us:
            raise BadRecord(f"a timer can only set later ones: {at_us} is not after {self.at_us}.")
        operator.table.timers.set(self.key, at_us)

    def cancel_timer(self, at: TimeLike, after: SpanLike = 0) -> None:
        """Take back :meth:`set_timer`."""
        self._operator.table.timers.cancel(self.key, moment_us(at) + (span_us(after) if after else 0))

    def set_clock_timer(self, after: SpanLike | None = None, *, at: TimeLike | None = None) -> int:
        """Have ``on_clock`` called for this key in a while, or at a time of the clock; return that time."""
        if (after is None) == (at is None):
            raise BadRecord("a clock timer needs either after=… or at=….")
        at_us = moment_us(at) if at is not None else self.now_us + max(1, span_us(after or 0))
        self._operator.table.clock_timers.set(self.key, at_us)
        return at_us

    def cancel_clock_timer(self, at: TimeLike) -> None:
        """Take back :meth:`set_clock_timer`."""
        self._operator.table.clock_timers.cancel(self.key, moment_us(at))

    def timers(self) -> list[int]:
        """The moments of event time that this key waits for."""
        return sorted(self._operator.table.timers.held.get(self.key, ()))

    def clock_timers(self) -> list[int]:
        """The moments of the clock that this key waits for."""
        return sorted(self._operator.table.clock_timers.held.get(self.key, ()))

    def forget(self) -> None:
        """Forget this key: its states are as at the beginning from the next record on, its timers are gone."""
        self._operator.table.forget(self.key)


def moment_us(at: TimeLike) -> int:
    """A moment in microseconds since the epoch; a datetime without a zone is in UTC, as Penstock's timestamps are."""
    if isinstance(at, int) and not isinstance(at, bool):
        return at
    if isinstance(at, datetime):
        from datetime import UTC

        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    raise BadRecord(f"{at!r} is no time.", hint="Give microseconds since the epoch, as timestamp columns hold them.")


def span_us(span: SpanLike) -> int:
    """A duration in microseconds."""
    return span // timedelta(microseconds=1) if isinstance(span, timedelta) else _parsed_us(span)


@lru_cache(maxsize=1024)
def _parsed_us(span: str | int | float) -> int:
    return parse_us(span, option="after", allow_zero=True)
