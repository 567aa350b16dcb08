"""Rate schedules: when each record of a generated source is due; users build them as ``ps.rates.…``."""

from __future__ import annotations

import bisect
import csv
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.durations import parse_us
from penstock.errors import InvalidOption, SourceMissing

_RATE_EPS_MAX = 1e9
_SEGMENTS_MAX = 1_000_000
_SECOND_US = 1e6

Duration = str | int | float


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time with one rate."""

    duration_us: int
    rate_eps: float


@dataclass(frozen=True)
class RateSchedule:
    """A rate that is constant piece by piece, without end.

    Attributes
    ----------
    segments : tuple of Segment
        The pieces in order.
    repeat_from : int or None
        First segment of the part that repeats for ever; None where the last segment goes on for ever.
    """

    segments: tuple[Segment, ...]
    repeat_from: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.segments) <= _SEGMENTS_MAX:
            raise InvalidOption(option="rate", given=f"{len(self.segments)} segments", allowed=f"1 to {_SEGMENTS_MAX}")
        for segment in self.segments:
            _check_rate("rate", segment.rate_eps, allow_zero=True)
        # Without a rate above 0 at the end there would be a record that is never due.
        endless = self.segments[-1:] if self.repeat_from is None else self.segments[self.repeat_from :]
        if not any(segment.rate_eps for segment in endless):
            raise InvalidOption(
                option="rate",
                given=0,
                allowed="a schedule that ends or repeats with a rate above 0; total= ends a source",
            )

    def time_us(self, offset: int) -> int:
        """Return when a record is due, in microseconds after the start."""
        table = self._table
        local, shift_us = float(offset), 0
        if table.period_count and local >= table.lead_count:
            # The order of the operations is that of times_us: both must round alike.
            cycle = math.floor((local - table.lead_count) / table.period_count)
            local = max(local - cycle * table.period_count, table.lead_count)
            shift_us = cycle * table.period_us
        i = bisect.bisect_right(table.start_counts, local) - 1
        due_us = table.starts_us[i] + math.floor((local - table.start_counts[i]) * _SECOND_US / table.rates_eps[i])
        return min(due_us, table.ends_us[i]) + shift_us

    def times_us(self, first: int, count: int, stride: int = 1) -> npt.NDArray[np.int64]:
        """Return :meth:`time_us` of ``first``, ``first + stride`` … for ``count`` records."""
        table = self._table
        starts_us, ends_us, start_counts, rates_eps = table.arrays
        local = np.arange(first, first + count * stride, stride, dtype=np.float64)
        shift_us = np.zeros(1, dtype=np.int64)
        if table.period_count:
            cycle = np.maximum(np.floor((local - table.lead_count) / table.period_count), 0.0)
            repeated = np.maximum(local - cycle * table.period_count, table.lead_count)
            local = np.where(local >= table.lead_count, repeated, local)
            shift_us = cycle.astype(np.int64) * table.period_us
        i = np.searchsorted(start_counts, local, side="right") - 1
        spent_us = np.floor((local - start_counts[i]) * _SECOND_US / rates_eps[i]).astype(np.int64)
        due_us: npt.NDArray[np.int64] = np.minimum(spent_us + starts_us[i], ends_us[i]) + shift_us
        return due_us

    def due(self, elapsed_us: int) -> int:
        """Return how many records are due by then: those whose time is not after ``elapsed_us``."""
        if elapsed_us < 0:
            return 0
        table = self._table
        local_us, before = elapsed_us + 1, 0.0
        if table.period_count and local_us >= table.lead_us:
            cycle = (local_us - table.lead_us) // table.period_us
            local_us -= cycle * table.period_us
            before = cycle * table.period_count
        i = max(bisect.bisect_right(table.starts_us, local_us) - 1, 0)
        spent_us = max(min(local_us, table.ends_us[i]) - table.starts_us[i], 0)
        count = math.ceil(before + table.start_counts[i] + spent_us * table.rates_eps[i] / _SECOND_US)
        # Floating point may be one record off either way; time_us decides.
        while self.time_us(count) <= elapsed_us:
            count += 1
        while count > 0 and self.time_us(count - 1) > elapsed_us:
            count -= 1
        return count

    @cached_property
    def _table(self) -> _Table:
        return _Table.build(self)

    def __getstate__(self) -> dict[str, object]:
        return {"segments": self.segments, "repeat_from": self.repeat_from}


_ENDLESS_US = 1 << 62


@dataclass(frozen=True)
class _Table:
    """The segments with a rate above 0, and where they start in time and in records."""

    starts_us: list[int]
    ends_us: list[int]
    start_counts: list[float]
    rates_eps: list[float]
    lead_us: int
    lead_count: float
    period_us: int
    period_count: float

    @staticmethod
    def build(schedule: RateSchedule) -> _Table:
        starts_us: list[int] = []
        ends_us: list[int] = []
        start_counts: list[float] = []
        rates_eps: list[float] = []
        at_us, count, lead_us, lead_count = 0, 0.0, 0, 0.0
        for index, segment in enumerate(schedule.segments):
            if index == schedule.repeat_from:
                lead_us, lead_count = at_us, count
            if segment.rate_eps:
                starts_us.append(at_us)
                start_counts.append(count)
                rates_eps.append(float(segment.rate_eps))
                ends_us.append(at_us + segment.duration_us)
            at_us += segment.duration_us
            count += segment.duration_us * segment.rate_eps / _SECOND_US
        if schedule.repeat_from is None:
            ends_us[-1] = _ENDLESS_US
            return _Table(starts_us, ends_us, start_counts, rates_eps, 0, 0.0, 0, 0.0)
        return _Table(
            starts_us,
            ends_us,
            start_counts,
            rates_eps,
            lead_us,
            lead_count,
            at_us - lead_us,
            count - lead_count,
        )

    @cached_property
    def arrays(
        self,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return (
            np.array(self.starts_us, dtype=np.int64),
            np.array(self.ends_us, dtype=np.int64),
            np.array(self.start_counts, dtype=np.float64),
            np.array(self.rates_eps, dtype=np.float64),
        )


def _check_rate(option: str, rate: object, *, allow_zero: bool = False) -> float:
    if (
        isinstance(rate, bool)
        or not isinstance(rate, int | float)
        or not math.isfinite(rate)
        or not 0 <= rate <= _RATE_EPS_MAX
        or (rate == 0 and not allow_zero)
    ):
        allowed = f"records per second, {'from' if allow_zero else 'above'} 0 to {_RATE_EPS_MAX:,.0f}"
        raise InvalidOption(option=option, given=rate, allowed=allowed)
    return float(rate)


def constant(rate: float) -> RateSchedule:
    """Build a schedule of one rate.

    Parameters
    ----------
    rate : float
        Records per second, over all partitions.
    """
    return RateSchedule((Segment(1_000_000, _check_rate("rate", rate)),))


def steps(pieces: Iterable[tuple[Duration, float]]) -> RateSchedule:
    """Build a schedule of steps.

    Parameters
    ----------
    pieces : iterable of (duration, rate)
        ``[("10s", 1_000), ("5s", 0), ("10s", 20_000)]``; the last one, not 0, goes on for ever.
    """
    segments = []
    for piece in pieces:
        try:
            duration, rate = piece
        except (TypeError, ValueError):
            raise InvalidOption(option="pieces", given=piece, allowed="pairs of a duration and a rate") from None
        segments.append(Segment(parse_us(duration, option="duration"), _check_rate("rate", rate, allow_zero=True)))
    return RateSchedule(tuple(segments))


def burst(
    *, base: float, peak: float, every: Duration = "60s", length: Duration = "10s", first: Duration = "10s"
) -> RateSchedule:
    """Build a schedule that bursts again and again.

    Parameters
    ----------
    base, peak : float
        Records per second between and within bursts.
    every, length, first : str or float
        From the start of a burst to that of the next, how long one lasts, and when the first one starts.
    """
    every_us, length_us = parse_us(every, option="every"), parse_us(length, option="length")
    first_us = parse_us(first, option="first", allow_zero=True)
    if length_us >= every_us:
        raise InvalidOption(option="length", given=length, allowed=f"less than every={every!r}")
    base_eps, peak_eps = (
        _check_rate("base", base, allow_zero=True),
        _check_rate("peak", peak, allow_zero=True),
    )
    cycle = (Segment(length_us, peak_eps), Segment(every_us - length_us, base_eps))
    if first_us == 0:
        return RateSchedule(cycle, repeat_from=0)
    return RateSchedule((Segment(first_us, base_eps), *cycle), repeat_from=1)


def trace(path: str | os.PathLike[str], *, scale: float = 1.0, speed: float = 1.0) -> RateSchedule:
    """Build a schedule from a recorded load, which starts again at its end.

    Parameters
    ----------
    path : str or path
        A CSV file with the columns ``time,value``: one row for each second, in order, its value the records per
        second; the times are not looked at. It is read here and now, so the workers do not need it.
    scale : float
        Factor on the rates.
    speed : float
        How much faster than recorded the rows follow each other; the rates stay the same.
    """
    for option, factor in (("scale", scale), ("speed", speed)):
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1e-6 <= factor <= 1e6:
            raise InvalidOption(option=option, given=factor, allowed="a number from 1e-6 to 1e6")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        raise SourceMissing(path=str(path), read="when the pipeline is built") from None
    rows = csv.DictReader(text.splitlines())
    if not {"time", "value"} <= set(rows.fieldnames or ()):
        raise InvalidOption(option="path", given=str(path), allowed="a CSV file with the columns time,value")
    duration_us = max(round(_SECOND_US / speed), 1)
    segments: list[Segment] = []
    for row in rows:
        try:
            rate = _check_rate("value", float(row["value"]) * scale, allow_zero=True)
        except (TypeError, ValueError):
            allowed = f"a number in line {rows.line_num} of {path}"
            raise InvalidOption(option="value", given=row["value"], allowed=allowed) from None
        if segments and segments[-1].rate_eps == rate:
            segments[-1] = Segment(segments[-1].duration_us + duration_us, rate)
        else:
            segments.append(Segment(duration_us, rate))
    return RateSchedule(tuple(segments), repeat_from=0)


def as_schedule(rate: float | RateSchedule | None) -> RateSchedule | None:
    """Return the schedule a user's ``rate=`` means; None stays None: as fast as it is read."""
    return rate if rate is None or isinstance(rate, RateSchedule) else constant(rate)
