"""Windows over event time, as users name them; `aggregation` cuts the stream by them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.durations import format_us, parse_us
from penstock.errors import InvalidOption, TypeMismatch
from penstock.types import TIMESTAMP, Field, Schema


class Emit(Enum):
    """When a window's result is sent on."""

    CLOSE = "close"
    """Once, when the watermark passes the window's end."""
    UPDATE = "update"
    """After every change, with the value so far."""


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size that follow each other without a gap, aligned to the epoch."""

    size_us: int
    on: str
    lateness_us: int = 0
    emit: Emit = Emit.CLOSE

    def check(self, schema: Schema) -> None:
        """Check that the time column is one."""
        found = schema.field(self.on).type
        if found != TIMESTAMP:
            raise TypeMismatch(
                what=f"the window's time column '{self.on}' is {found.ddl}.",
                hint="Declare or cast it as timestamp.",
            )

    @property
    def fields(self) -> tuple[Field, ...]:
        """Columns that a window adds to its results."""
        return Field("window_start", TIMESTAMP, False), Field("window_end", TIMESTAMP, False)

    def __str__(self) -> str:
        lateness = format_us(self.lateness_us) if self.lateness_us else "0"
        return f"tumbling {format_us(self.size_us)} on {self.on}, lateness {lateness}"


def tumbling(size: str | float, *, on: str, lateness: str | float = 0, emit: str = "close") -> Tumbling:
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
        How far behind the newest record a record may be: the watermark trails the largest event time by this
        much, a window closes when the watermark reaches its end, and what comes later for it is late: counted,
        not in the result, and sent to ``.late`` if something reads that. With several partitions the slowest
        one that is not idle counts.
    emit : {"close", "update"}
        One result when the window closes, or the value so far after every change.
    """
    try:
        when = Emit(emit)
    except ValueError:
        raise InvalidOption(option="emit", given=emit, allowed="close, update") from None
    return Tumbling(parse_us(size, option="size"), on, parse_us(lateness, option="lateness", allow_zero=True), when)
