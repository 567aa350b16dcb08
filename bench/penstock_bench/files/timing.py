"""Windows and times to live of a workload file, checked, in microseconds; `layout` keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.durations import parse_us
from penstock.errors import InvalidOption
from penstock.operators import OVERLAP_MAX
from penstock_bench.files.model import (
    AnyTransformation,
    Join,
    SlidingParams,
    SlidingWindow,
    TumblingParams,
    WindowParams,
    WindowType,
)
from penstock_bench.files.problems import Problem, not_allowed


@dataclass(frozen=True, slots=True)
class WindowTiming:
    """Windows of one size, one starting every ``slide_us``; they overlap where that is less than the size.

    A session's size is its gap, and it may start at any time.
    """

    size_us: int
    slide_us: int
    lateness_us: int
    is_session: bool = False


def timing_of(transformation: AnyTransformation, path: str, problems: list[Problem]) -> WindowTiming | int | None:
    """Return a window's timing, a join's time to live in microseconds, or None where there is nothing to time."""
    params, at = transformation.params, f"{path}.params"
    if isinstance(transformation, Join):
        return _us(transformation.params.ttl, f"{at}.ttl", problems)
    if not isinstance(params, TumblingParams):
        return None
    size_us = _us(params.duration, f"{at}.duration", problems)
    lateness_us = _us(params.lateness, f"{at}.lateness", problems, allow_zero=True)
    slide_us = size_us
    sliding = isinstance(transformation, SlidingWindow)
    if isinstance(params, WindowParams):
        sliding = params.type is WindowType.SLIDING
        if params.type is WindowType.SESSION and params.slide is None:
            return WindowTiming(size_us, 1, lateness_us, is_session=True)
        if not sliding and params.slide is not None:
            problems.append(Problem(f"{at}.slide", "only sliding windows have it. Did you mean type 'sliding'?"))
    if sliding and isinstance(params, SlidingParams):
        slide_us = size_us // 2 if params.slide is None else _us(params.slide, f"{at}.slide", problems)
        if size_us and slide_us and not size_us <= slide_us * OVERLAP_MAX <= size_us * OVERLAP_MAX:
            allowed = f"at most the duration, and at least a {OVERLAP_MAX}th of it"
            problems.append(not_allowed(f"{at}.slide", params.slide, allowed))
    return WindowTiming(size_us, slide_us, lateness_us)


def _us(value: str | float, path: str, problems: list[Problem], allow_zero: bool = False) -> int:
    """Read a duration; 0 where it cannot be read, which is among the problems then."""
    try:
        return parse_us(value, option=path, allow_zero=allow_zero)
    except InvalidOption as error:
        problems.append(not_allowed(path, value, error.hint.removeprefix("Allowed: ").rstrip(".")))
        return 0
