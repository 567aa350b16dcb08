"""Times that may be unknown; the engine compares them."""

from __future__ import annotations


def later(known_us: int | None, shown_us: int | None) -> int | None:
    """Return the later of two event times, either of which may be unknown."""
    if known_us is None or shown_us is None:
        return shown_us if known_us is None else known_us
    return max(known_us, shown_us)


def sooner(one_us: int | None, other_us: int | None) -> int | None:
    """Return the sooner of two times, either of which may never come."""
    if one_us is None or other_us is None:
        return other_us if one_us is None else one_us
    return min(one_us, other_us)
