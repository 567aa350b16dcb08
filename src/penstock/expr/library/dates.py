"""Functions of dates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadRecord
from penstock.expr.functions import DAY_US, EPOCH_DAYS, overflow
from penstock.expr.library.patterns import DAYS, MONTHS, day_of
from penstock.expr.table import define, same
from penstock.expr.typed import Typed
from penstock.types import DATE, DOUBLE, INT, STRING

add = define("dates")
_INT32 = (1 << 31) - 1
_FIRST_DAY, _LAST_DAY = (each.toordinal() - EPOCH_DAYS for each in (date.min, date.max))


def _in_range(days: int) -> int:
    return days if -_INT32 <= days <= _INT32 else overflow(days, "date")


def _plus(days: int, more: int) -> int:
    return _in_range(days + more)


def _minus(days: int, less: int) -> int:
    return _in_range(days - less)


def _days_in(year: int, month: int) -> int:
    following = date(year + month // 12, month % 12 + 1, 1) if (year, month) != (9999, 12) else None
    return 31 if following is None else (following - date(year, month, 1)).days


def plus_months(days: int, months: int) -> int:
    """The same day so many months later, or the last one of that month."""
    day = day_of(days)
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        overflow(days, "the years 1 to 9999")
    return date(year, month + 1, min(day.day, _days_in(year, month + 1))).toordinal() - EPOCH_DAYS


def _plus_months_to(node: Typed) -> Callable[[int, int], int]:
    if node.args[0].type == DATE:
        return plus_months

    def of_timestamp(time_us: int, months: int) -> int:
        days, rest = divmod(time_us, DAY_US)
        return plus_months(days, months) * DAY_US + rest

    return of_timestamp


def last_day(days: int) -> int:
    """Last day of the month."""
    day = day_of(days)
    return days + _days_in(day.year, day.month) - day.day


_NAMES = {name[:length].upper(): i for i, name in enumerate(DAYS) for length in (2, 3, len(name))}


def next_day(days: int, name: str) -> int:
    """The next Monday, Tuesday …"""
    wanted = _NAMES.get(name.strip().upper())
    if wanted is None:
        raise BadRecord(f"{name!r} is not a day of the week.")
    return days + (wanted - (days + 3) - 1) % 7 + 1


_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    **dict.fromkeys(("MONTH", "MON", "MM"), "month"),
    "QUARTER": "quarter",
    "WEEK": "week",
}


def trunc(days: int, unit: str) -> int | None:
    """First day of the year, quarter, month or week; null for any other unit."""
    word = _UNITS.get(unit.upper())
    if word is None:
        return None
    if word == "week":
        return days - (days + 3) % 7
    day = day_of(days)
    month = {"year": 1, "quarter": (day.month - 1) // 3 * 3 + 1}.get(word, day.month)
    return date(day.year, month, 1).toordinal() - EPOCH_DAYS


def make_date(year: int, month: int, day: int) -> int:
    """A date from its parts."""
    try:
        return date(year, month, day).toordinal() - EPOCH_DAYS
    except ValueError as error:
        raise BadRecord(f"{year}-{month}-{day} is not a date: {error}.") from None


def months_between(later_us: int, earlier_us: int, round_off: bool = True) -> float:
    """Months from one time to another; days count as 1/31."""
    (a_days, a_us), (b_days, b_us) = divmod(later_us, DAY_US), divmod(earlier_us, DAY_US)
    a, b = day_of(a_days), day_of(b_days)
    months = (a.year - b.year) * 12 + a.month - b.month
    if a.day == b.day or (a.day == _days_in(a.year, a.month) and b.day == _days_in(b.year, b.month)):
        return float(months)
    seconds = (a.day - b.day) * 86_400 + a_us // 1_000_000 - b_us // 1_000_000
    made = months + seconds / (31 * 86_400)
    return round(made, 8) if round_off else made


def _part(of: Callable[[date], int]) -> Callable[[int], int]:
    return lambda days: of(day_of(days))


def _kernel(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def kernel(days: Any) -> Any:
        if isinstance(days, pa.Array) and len(days) > days.null_count:
            bounds = pc.min_max(days.view(pa.int32())).as_py()
            if bounds["min"] < _FIRST_DAY or bounds["max"] > _LAST_DAY:
                return None  # the record form raises
        return pc.cast(function(days), pa.int32())

    return kernel


def _datediff(end: int, start: int) -> int:
    return (end - start + (1 << 31)) % (1 << 32) - (1 << 31)  # as Java wraps around


add("year", "c:date", INT, _part(lambda d: d.year), kernel=_kernel(pc.year))
add("quarter", "c:date", INT, _part(lambda d: (d.month + 2) // 3), kernel=_kernel(pc.quarter))
add("month", "c:date", INT, _part(lambda d: d.month), kernel=_kernel(pc.month))
add("dayofmonth day", "c:date", INT, _part(lambda d: d.day), kernel=_kernel(pc.day))
add("dayofyear", "c:date", INT, _part(lambda d: d.timetuple().tm_yday), kernel=_kernel(pc.day_of_year))
add("dayofweek", "c:date", INT, lambda days: (days + 4) % 7 + 1)
add("weekday", "c:date", INT, lambda days: (days + 3) % 7)
add("weekofyear", "c:date", INT, _part(lambda d: d.isocalendar()[1]), kernel=_kernel(pc.iso_week))
add("dayname", "c:date", STRING, lambda days: DAYS[(days + 3) % 7][:3])
add("monthname", "c:date", STRING, lambda days: MONTHS[day_of(days).month - 1][:3])
add("date_add dateadd", "c:date c:int", DATE, _plus)
add("date_sub", "c:date c:int", DATE, _minus)
add("datediff date_diff", "c:date c:date", INT, _datediff)
add("add_months", "c:date c:int", DATE, plus_months)
add("_plus_months", "c:time l:int", same(), make=_plus_months_to)
add("last_day", "c:date", DATE, last_day)
add("next_day", "c:date l:string", DATE, next_day)
add("trunc", "c:date l:string", DATE, trunc, nullable=True)
add("make_date", "c:int c:int c:int", DATE, make_date)
add("months_between", "c:timestamp c:timestamp l:boolean?", DOUBLE, months_between)
add("unix_date", "c:date", INT, source="{0}")
add("date_from_unix_date", "c:int", DATE, source="{0}")
