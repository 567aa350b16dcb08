"""Recorded loads for the study of dynamism: where they lie, which stretch is replayed, how fast and how high."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from penstock.connectors.rates import RateSchedule, Segment, trace
from penstock.errors import InvalidOption

DIRECTORY_VARIABLE = "PENSTOCK_TRACES"
NAMES = ("twitter", "dns", "log")
RAW = "twitter-raw"
SPEED = 30.0
"""Times faster than recorded."""
PEAK_S = 0.5
"""A load is as high as its busiest so many seconds, as replayed: a single second of the record is over in 33 ms."""
MADE_UP = "made-up"
_MADE_UP_S = 3600
_BASE_EPS, _BURST_FACTORS, _BURST_S, _CALM_S = 1000.0, (3.0, 8.0), (20, 90), (40, 200)
_NEIGHBOUR = Path("..") / "shared" / "traces"


@dataclass(frozen=True)
class Trace:
    """A load, second by second."""

    name: str
    origin: str
    """Where it is from, in words."""
    rates_eps: tuple[float, ...]

    def stretch(self, seconds: float, peak_eps: float) -> Stretch:
        """Take the part around its busiest time that lasts so long when replayed, scaled to a height."""
        rates = np.array(self.rates_eps)
        rows = min(len(rates), max(1, round(seconds * SPEED)))
        width = min(rows, max(1, round(PEAK_S * SPEED)))
        sums = np.convolve(rates, np.ones(width), mode="valid")
        busiest = int(sums.argmax())
        first = int(np.clip(busiest + width // 2 - rows // 2, 0, len(rates) - rows))
        scale = peak_eps / (float(sums[busiest]) / width)
        return Stretch(self, first, tuple(float(each) for each in rates[first : first + rows] * scale))


@dataclass(frozen=True)
class Stretch:
    """A part of a load as it is replayed."""

    trace: Trace
    first_s: int
    """Second of the record that it begins with."""
    rates_eps: tuple[float, ...]
    speed: float = SPEED

    @property
    def seconds(self) -> float:
        return len(self.rates_eps) / self.speed

    @property
    def schedule(self) -> RateSchedule:
        segments = [Segment(round(1e6 / self.speed), rate) for rate in self.rates_eps]
        # A schedule must not end in silence: what comes after the stretch is not read.
        return RateSchedule((*segments, Segment(1_000_000, 1.0)))

    def rate_eps(self, at_s: float) -> float:
        place = int(at_s * self.speed)
        return self.rates_eps[place] if 0 <= place < len(self.rates_eps) else 0.0

    @property
    def mean_eps(self) -> float:
        return sum(self.rates_eps) / len(self.rates_eps)


def find_traces(at: Path | None = None, names: Sequence[str] = NAMES) -> list[Trace]:
    """Return the loads of a directory, of the one that PENSTOCK_TRACES names, or of one beside the project.

    Where there is none of these directories one load is made up.

    Raises
    ------
    InvalidOption
        The directory that was given, or that the variable names, has none of them.
    """
    given = str(at) if at is not None else os.environ.get(DIRECTORY_VARIABLE)
    directory = Path(given) if given else Path(__file__).parents[3] / _NEIGHBOUR
    found = [_read(directory / f"{name}.csv") for name in names if (directory / f"{name}.csv").is_file()]
    if given and not found:
        allowed = f"a directory with one or more of {', '.join(f'{name}.csv' for name in names)}"
        raise InvalidOption(option=DIRECTORY_VARIABLE if at is None else "--traces", given=given, allowed=allowed)
    return found or [made_up()]


def _read(path: Path) -> Trace:
    rates: list[float] = []
    for segment in trace(path).segments:
        rates += [segment.rate_eps] * round(segment.duration_us / 1e6)
    return Trace(path.stem, f"recorded, {path.name}, {len(rates):,} s", tuple(rates))


def made_up(seed: int = 7) -> Trace:
    """Make a bursty load up: calm times of uneven length, bursts of uneven height; the same one every time."""
    chance = Random(seed)
    rates: list[float] = []
    while len(rates) < _MADE_UP_S:
        for factor, bounds in ((1.0, _CALM_S), (chance.uniform(*_BURST_FACTORS), _BURST_S)):
            length = chance.randint(*bounds)
            rates += [_BASE_EPS * factor * chance.uniform(0.8, 1.2) for _ in range(length)]
    return Trace(MADE_UP, "made up: no recorded loads were found", tuple(rates[:_MADE_UP_S]))
