"""Windows over event time, as users name them; `aggregation` cuts the stream by them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from math import gcd
from typing import Any

from penstock.checks import OneOf
from penstock.durations import format_us, parse_us
from penstock.errors import InvalidOption, TypeMismatch
from penstock.operators.base import Lateness
from penstock.types import TIMESTAMP, Field, Schema

OVERLAP_MAX = 1_000
"""How many windows a record may be in."""


class Emit(Enum):
    """When the result of a group is sent on."""

    CLOSE = "close"
    """Once, when the watermark passes the window's end."""
    CHANGE = "change"
    """When it has changed, with the value so far: at most once for each block of records, which may change it often."""
    EVERY = "every"
    """For every record, with the value so far."""

    @staticmethod
    def read(given: str) -> Emit:
        """Read the option; ``"update"`` is another word for ``"change"``."""
        return OneOf(Emit).read("emit", "change" if given == "update" else given)


@dataclass(frozen=True)
class Window(ABC):
    """Windows of one size over event time, aligned to the epoch; the kinds differ in how far apart they start."""

    size_us: int
    on: str
    lateness_us: int = 0
    emit: Emit = Emit.CLOSE
    allowed_lateness_us: int = field(default=0, kw_only=True)
    early_us: int = field(default=0, kw_only=True)
    """How often the value so far is sent on before the window closes, in event time; 0: never."""

    @property
    @abstractmethod
    def pane_us(self) -> int:
        """Length of the pieces that no window divides: all records of a piece are in the same windows."""

    @property
    @abstractmethod
    def lateness(self) -> Lateness:
        """When a record is late."""

    def check(self, schema: Schema) -> None:
        """Check that the time column is one."""
        check_time(schema, self.on, "the window's time column")

    @property
    def fields(self) -> tuple[Field, ...]:
        """Columns that a window adds to its results."""
        return Field("window_start", TIMESTAMP, False), Field("window_end", TIMESTAMP, False)

    @property
    def delays_us(self) -> dict[str, int]:
        """How far the columns that it adds may be behind the watermark."""
        delay_us = self.lateness_us + self.allowed_lateness_us
        return {"window_start": delay_us + self.size_us, "window_end": delay_us}

    def _told(self, kind: str) -> str:
        late = f"lateness {format_us(self.lateness_us) if self.lateness_us else '0'}"
        kept = f", kept {format_us(self.allowed_lateness_us)}" if self.allowed_lateness_us else ""
        early = f", early every {format_us(self.early_us)}" if self.early_us else ""
        return f"{kind} on {self.on}, {late}{kept}{early}"

    @property
    def shown(self) -> str:
        """Source of the columns that a window adds, of its start ``w``."""
        return f"w, w + {self.size_us}"


@dataclass(frozen=True)
class Tumbling(Window):
    """Windows that follow each other without a gap: every record is in one."""

    @property
    def pane_us(self) -> int:
        return self.early_us or self.size_us

    @property
    def lateness(self) -> Lateness:
        # With early firings, who missed one has to be known too.
        size_us = self.early_us or self.size_us
        return Lateness(size_us, size_us, self.lateness_us + self.allowed_lateness_us)

    def __str__(self) -> str:
        return self._told(f"tumbling {format_us(self.size_us)}")


@dataclass(frozen=True)
class Sliding(Window):
    """Windows that overlap: one starts every ``slide_us``, so a record is in several."""

    slide_us: int = field(kw_only=True)

    @property
    def pane_us(self) -> int:
        return self.early_us or gcd(self.size_us, self.slide_us)

    @property
    def lateness(self) -> Lateness:
        if self.early_us:
            return Lateness(self.early_us, self.early_us, self.lateness_us)
        return Lateness(self.size_us, self.slide_us, self.lateness_us + self.allowed_lateness_us)

    def starts(self, time_us: int) -> range:
        """Starts of the windows that a time is in, the oldest first."""
        newest = time_us - time_us % self.slide_us
        older = (newest - (time_us - self.size_us) - 1) // self.slide_us
        return range(newest - older * self.slide_us, newest + 1, self.slide_us)

    def __str__(self) -> str:
        return self._told(f"sliding {format_us(self.size_us)} every {format_us(self.slide_us)}")


@dataclass(frozen=True)
class Session(Window):
    """Windows that hold records of which each is at most a gap, the ``size_us``, away from another one."""

    @property
    def pane_us(self) -> int:
        return 1

    @property
    def lateness(self) -> Lateness:
        return Lateness(delay_us=self.lateness_us)

    @property
    def delays_us(self) -> dict[str, int]:
        return {"window_end": self.lateness_us}  # how far back a session may begin nobody knows

    def __str__(self) -> str:
        return self._told(f"sessions with gaps above {format_us(self.size_us)}")


@dataclass(frozen=True)
class Global(Window):
    """One window that never ends; the value so far is sent on at every multiple of ``size_us``."""

    @property
    def pane_us(self) -> int:
        return self.size_us

    @property
    def lateness(self) -> Lateness:
        return Lateness(self.size_us, self.size_us, self.lateness_us)

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("window_end", TIMESTAMP, False),)

    @property
    def delays_us(self) -> dict[str, int]:
        return {"window_end": self.lateness_us}

    @property
    def shown(self) -> str:
        return "w"

    def __str__(self) -> str:
        return self._told(f"all so far, every {format_us(self.size_us)}")


def check_time(schema: Schema, column: str, what: str) -> None:
    """Check that a column holds event time; ``what`` names it in the error."""
    found = schema.field(column).type
    if found != TIMESTAMP:
        raise TypeMismatch(what=f"{what} '{column}' is {found.ddl}.", hint="Declare or cast it as timestamp.")


def tumbling(
    size: str | float,
    *,
    on: str,
    lateness: str | float = 0,
    allowed_lateness: str | float = 0,
    emit: str = "close",
    early: str | float | None = None,
) -> Tumbling:
    """Windows of a fixed size over event time, aligned to the epoch.

    Results have the columns ``window_start`` (in the window) and ``window_end`` (the first moment after it) after
    the key. When the input ends, or a job without a checkpoint drains, windows that are still open close with what
    they have.

    Parameters
    ----------
    size : str or number
        Length, such as ``"10s"``.
    on : str
        The timestamp column.
    lateness : str or number
        How far behind the newest record of its partition a record may be, where the stream does not say that itself
        (:meth:`Stream.with_watermark`): the watermark trails the largest event time by this much. A window closes when
        the watermark reaches its end. What is behind the watermark of its own partition then is late: counted, not in
        the result, and sent to ``.late`` if something reads that. With several partitions the slowest one that is not
        idle counts.
    allowed_lateness : str or number
        How long a window is kept after it has closed. What comes for it then is not late: it makes the result anew,
        and that is sent on too.
    emit : {"close", "change", "every"}
        One result when the window closes; or the value so far, whenever it has changed (at most once for each block of
        records, in which it may change several times), or for every record.
    early : str or number, optional
        How often the value so far is sent on before the window closes, such as ``"5s"``: a part of the size. It goes by
        event time: when the watermark passes a multiple of it, each result that has changed is sent on as it is for
        the records before that moment, whatever has come already. So these results are the same in every run, too.

    Examples
    --------
    >>> import penstock as ps
    >>> clicks = ps.stream("clicks", ps.records([(1_000_000,), (6_000_000,)], schema="at timestamp"))
    >>> [row["count"] for row in clicks.window(ps.tumbling("10s", on="at", early="5s")).count().take()]
    [1, 2]
    """
    size_us = parse_us(size, option="size")
    return Tumbling(size_us, on, **_closing(lateness, allowed_lateness, emit, early, size_us))


def _closing(
    lateness: str | float, allowed_lateness: str | float, emit: str, early: str | float | None, *lengths_us: int
) -> dict[str, Any]:
    """Read the options that say when windows close, and what is sent on."""
    read, early_us = Emit.read(emit), 0 if early is None else parse_us(early, option="early")
    kept_us = parse_us(allowed_lateness, option="allowed_lateness", allow_zero=True)
    if early_us and (read is not Emit.CLOSE or kept_us):
        raise InvalidOption(option="early", given=early, allowed="with emit='close' and without allowed_lateness")
    if early_us and any(length_us % early_us for length_us in lengths_us):
        lengths = " and of ".join(map(format_us, lengths_us))
        raise InvalidOption(option="early", given=early, allowed=f"a part of {lengths} without a rest")
    lateness_us = parse_us(lateness, option="lateness", allow_zero=True)
    return {"lateness_us": lateness_us, "allowed_lateness_us": kept_us, "emit": read, "early_us": early_us}


def session(gap: str | float, *, on: str, lateness: str | float = 0) -> Session:
    """Windows as long as records of a key keep coming: one closes when none has come for more than ``gap``.

    Results have the columns ``window_start`` (the time of the first record) and ``window_end`` (that of the last one,
    and the gap) after the key, and are sent on when the watermark has passed the end. A record that is behind the
    watermark of its own partition is late: counted, in no session, and sent to ``.late`` if something reads that.

    Parameters
    ----------
    gap : str or number
        How far apart the times of two records may be at most to be in the same session, such as ``"30m"``.
    on : str
        The timestamp column.
    lateness : str or number
        As for :func:`tumbling`.

    Examples
    --------
    >>> clicks.key_by("user").window(ps.session("30m", on="time")).count()  # doctest: +SKIP
    """
    return Session(parse_us(gap, option="gap"), on, parse_us(lateness, option="lateness", allow_zero=True))


def sliding(
    size: str | float,
    *,
    slide: str | float,
    on: str,
    lateness: str | float = 0,
    allowed_lateness: str | float = 0,
    emit: str = "close",
    early: str | float | None = None,
) -> Sliding:
    """Windows of a fixed size over event time that overlap: one starts at every multiple of ``slide``.

    A record is in ``size / slide`` windows (in one more or less where the slide does not divide the size). Results,
    and what happens at the end of the input, are as with :func:`tumbling`. A record that comes when the first of its
    windows has closed is late: counted once, and in those of its windows that are still open; no late records
    therefore means that every result is complete.

    Parameters
    ----------
    size : str or number
        Length, such as ``"10s"``.
    slide : str or number
        How far apart windows start: at most the size, and at least a thousandth of it.
    on, lateness, allowed_lateness, emit, early
        As for :func:`tumbling`.

    Examples
    --------
    >>> window = sliding("10s", slide="4s", on="time")
    >>> list(window.starts(9_000_000))
    [0, 4000000, 8000000]
    """
    size_us, slide_us = parse_us(size, option="size"), parse_us(slide, option="slide")
    if not size_us <= slide_us * OVERLAP_MAX <= size_us * OVERLAP_MAX:
        allowed = f"at most the size, {format_us(size_us)}, and at least 1/{OVERLAP_MAX} of it"
        raise InvalidOption(option="slide", given=slide, allowed=allowed)
    options = _closing(lateness, allowed_lateness, emit, early, size_us, slide_us)
    return Sliding(size_us, on, **options, slide_us=slide_us)
