"""What the next moments bring: a short forecast of a rate, used only to be ready ahead of a rise. Pure.

Three ways to guess are kept side by side: what is now stays; the trend goes on, and fades; what was a season ago comes
again. Each is held against what came, and the one that was least wrong of late is believed. So a load without trend or
season is never guessed worse than by taking it as it is, but for the time in which that is found out.

The season is looked for in a history of at most `CELLS` cells. When it is full, two cells become one: a season of a
minute and one of a day are found in the same memory, as soon as two of them have been seen. The last `RECENT` looks
are kept as they were, so that a season that is not too long is known to the look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

CELLS = 256
RECENT = 1_024
LAG_MIN = 4
"""Cells that a season has at least."""
SEASONS_MIN = 2.0
LIKENESS_MIN = 0.5
"""How much a history must be like itself a season later (autocorrelation) to be called seasonal."""
SEEK_CELLS = 8
"""A season is looked for again whenever the history has grown by so many cells."""
LEVEL_WEIGHT, TREND_WEIGHT, FADING, ERROR_WEIGHT = 0.6, 0.3, 0.9, 0.1
ADVANTAGE = 0.9
"""A guess must have been this much less wrong than the simplest one to be believed."""


@dataclass(slots=True)
class _Guess:
    """One way to guess, and how wrong it was."""

    error: float | None = None
    made: deque[float | None] = field(default_factory=deque)
    """For the next looks, the oldest first."""

    def learn(self, value: float, horizon: int) -> None:
        if len(self.made) < horizon:
            return
        guess = self.made.popleft()
        if guess is None:
            self.error = None
        else:
            miss = abs(guess - value)
            self.error = miss if self.error is None else self.error + ERROR_WEIGHT * (miss - self.error)


class Forecast:
    """A rate over time, a look at a time.

    Parameters
    ----------
    horizon : int
        How many looks ahead it says.

    Examples
    --------
    >>> forecast = Forecast()
    >>> for value in range(0, 200, 10):
    ...     forecast.add(value)
    >>> 190 < forecast.ahead() < 210
    True
    """

    def __init__(self, horizon: int = 1) -> None:
        self._horizon = max(1, horizon)
        self._same, self._trend, self._season = _Guess(), _Guess(), _Guess()
        self._level = self._slope = 0.0
        self._last: float | None = None
        self._cells: list[float] = []
        self._width = 1
        """Looks in a cell."""
        self._filling: list[float] = []
        self._recent: deque[float] = deque(maxlen=RECENT)
        self.season = 0
        """Looks in a season; 0 if there is none."""
        self._unsought = 0

    @property
    def method(self) -> str:
        """Which guess is believed: ``same``, ``trend`` or ``season``."""
        base = self._same.error
        best, least = "same", None if base is None else ADVANTAGE * base
        for name, guess in (("trend", self._trend), ("season", self._season)):
            if least is not None and guess.error is not None and guess.error < least:
                best, least = name, guess.error
        return best

    def add(self, value: float) -> None:
        """Take the next look."""
        if not isfinite(value) or value < 0:
            return
        for guess in (self._same, self._trend, self._season):
            guess.learn(value, self._horizon)
        if self._last is None:
            self._level = value
        else:
            before = self._level
            self._level = LEVEL_WEIGHT * value + (1 - LEVEL_WEIGHT) * (before + FADING * self._slope)
            self._slope = TREND_WEIGHT * (self._level - before) + (1 - TREND_WEIGHT) * FADING * self._slope
        self._last = value
        self._keep(value)
        self._same.made.append(value)
        self._trend.made.append(self._by_trend())
        self._season.made.append(self._by_season())

    def ahead(self) -> float:
        """What is expected ``horizon`` looks from now."""
        guess = {"same": self._last, "trend": self._by_trend(), "season": self._by_season()}[self.method]
        return max(0.0, self._last or 0.0 if guess is None else guess)

    def _by_trend(self) -> float:
        steps = sum(FADING**step for step in range(1, self._horizon + 1))
        return self._level + self._slope * steps

    def _by_season(self) -> float | None:
        """What came a season ago, moved by how far the present is from what was then."""
        if not self.season or self._last is None:
            return None
        then, next_then = self._at(-self.season), self._at(self._horizon - self.season)
        return None if then is None or next_then is None else self._last + next_then - then

    def _at(self, looks: int) -> float | None:
        """The history so many looks from the last one: as it was, or else between the middles of two cells."""
        if -len(self._recent) < looks <= 0:
            return self._recent[looks - 1]
        place = len(self._cells) + (len(self._filling) + looks - 0.5) / self._width - 0.5
        first = int(place)
        if first < 0 or first + 1 >= len(self._cells):
            return None
        share = place - first
        return (1 - share) * self._cells[first] + share * self._cells[first + 1]

    def _keep(self, value: float) -> None:
        self._recent.append(value)
        self._filling.append(value)
        if len(self._filling) < self._width:
            return
        self._cells.append(sum(self._filling) / self._width)
        self._filling.clear()
        self._unsought += 1
        if len(self._cells) == CELLS:
            self._cells = [(one + two) / 2 for one, two in zip(self._cells[::2], self._cells[1::2], strict=True)]
            self._width *= 2
        if self._unsought >= SEEK_CELLS:
            self._unsought = 0
            self.season = self._refined(season(self._cells) * self._width)

    def _refined(self, looks: int) -> int:
        """A season that cells have told roughly, to the look if the recent past is long enough."""
        if not looks or looks + self._width + CELLS > len(self._recent):
            return looks
        recent = list(self._recent)[-looks - self._width - CELLS :]
        ends = recent[-CELLS:]

        def unlike(lag: int) -> float:
            return sum(abs(now - then) for now, then in zip(ends, recent[-CELLS - lag : -lag], strict=True))

        return min(range(max(1, looks - self._width), looks + self._width + 1), key=unlike)


def season(values: Sequence[float]) -> int:
    """Return after how many values a series repeats itself: the first lag at which it is most like itself; 0 if none.

    Examples
    --------
    >>> season([0, 1, 4, 9, 4, 1] * 6)
    6
    """
    count = len(values)
    mean = sum(values) / count if count else 0.0
    centred = [value - mean for value in values]
    power = sum(value * value for value in centred)
    if power <= 0.0:
        return 0
    lags = range(LAG_MIN, int(count / SEASONS_MIN) + 1)
    likeness = [
        sum(one * two for one, two in zip(centred, centred[lag:], strict=False)) / power * count / (count - lag)
        for lag in lags
    ]
    peaks = [
        place
        for place in range(1, len(likeness) - 1)
        if likeness[place - 1] < likeness[place] >= likeness[place + 1] and likeness[place] >= LIKENESS_MIN
    ]
    if not peaks:
        return 0
    highest = max(likeness[place] for place in peaks)
    return lags[next(place for place in peaks if likeness[place] >= 0.9 * highest)]
