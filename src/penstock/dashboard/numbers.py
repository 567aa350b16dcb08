"""Numbers for people: three digits and a suffix; every screen and message of the command line uses them."""

from __future__ import annotations

_SUFFIXES = ("", "K", "M", "G", "T")


def human(number: float) -> str:
    """Write a count or a rate in three digits: 7, 250, 12.3K, 1.50M."""
    if number < 0:
        return f"-{human(-number)}"
    if number < 1000 and round(number) < 1000:
        return f"{number:.1f}" if number < 10 and number != int(number) else f"{number:.0f}"
    for suffix in _SUFFIXES[1:]:
        number /= 1000
        # What would be rounded to 1000 belongs to the next suffix.
        if number < 999.5 or suffix == _SUFFIXES[-1]:
            return f"{_three_digits(number)}{suffix}"
    raise AssertionError("the last suffix takes everything")


def _three_digits(number: float) -> str:
    if number < 9.995:
        return f"{number:.2f}"
    return f"{number:.1f}" if number < 99.95 else f"{number:.0f}"


def measure(number: float) -> str:
    """Write a time or a ratio in about three digits: 0.04, 1.25, 12.3, 450."""
    return human(number) if number >= 999.5 else _three_digits(number)


def span(seconds: float) -> str:
    """Write how long something has lasted: 8s, 2m 05s, 3h 10m."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m"
