"""Event times that may be unknown; the engine compares them."""

from __future__ import annotations


def later(known_us: int | None, shown_us: int | None) -> int | None:
    """Return the later of two event times, either of which may be unknown."""
    if known_us is None or shown_us is None:
        return shown_us if known_us is None else known_us
    return max(known_us, shown_us)
