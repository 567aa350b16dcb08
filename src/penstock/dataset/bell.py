"""A bell: whoever brings something rings it, whoever sleeps looks at it; so nobody asks everybody at every turn."""

from __future__ import annotations

NEVER_US = 1 << 62
"""A time that does not come."""


class Bell:
    """Tells a unit, or the sender of a channel, that there may be something to do.

    Attributes
    ----------
    rung : bool
        Something has come since it was last looked at.
    blocked : bool
        Its owner waits for room in a log: whoever makes some rings.
    """

    __slots__ = ("blocked", "rung")

    def __init__(self) -> None:
        self.rung = True
        self.blocked = False
