"""The simulated network: every link delays, loses, repeats and reorders, those to the driver too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.testing.simulation.world import World


@dataclass(frozen=True)
class Weather:
    """How the network behaves in one run."""

    delay_us_max: int
    driver_delay_us_max: int
    """On connections to and from the driver."""
    loss: float = 0.0
    duplication: float = 0.0
    reorders: bool = True


@dataclass(frozen=True)
class _Cut:
    one: str
    other: str | None
    until_us: int


class Network:
    """Delivers messages between addresses, sooner or later."""

    def __init__(self, world: World, weather: Weather) -> None:
        self.lost = 0
        self.repeated = 0
        self._world = world
        self._weather = weather
        self._cuts: list[_Cut] = []
        self._last_us: dict[tuple[str, str], int] = {}

    def cut(self, one: str, other: str | None, until_us: int) -> None:
        """Hold what passes between two addresses, or one and all others, until a time."""
        self._cuts.append(_Cut(one, other, until_us))

    def is_cut(self, name: str) -> bool:
        """Whether something on its way to or from an address is being held."""
        return any(name in (cut.one, cut.other) and cut.until_us > self._world.now_us for cut in self._cuts)

    def _released_us(self, source: str, target: str) -> int:
        now_us = self._world.now_us
        released_us = now_us
        if self._cuts:
            self._cuts = [cut for cut in self._cuts if cut.until_us > now_us]
            for cut in self._cuts:
                if cut.one in (source, target) and (cut.other is None or cut.other in (source, target)):
                    released_us = max(released_us, cut.until_us)
        return released_us

    def send(self, source: str, target: str, label: str, deliver: Callable[[], None], *, driver: bool = False) -> None:
        """Send a message: it may be lost, repeated, overtaken; ``driver``: it comes from the driver, or goes there."""
        world, weather = self._world, self._weather
        if world.chance(weather.loss):
            self.lost += 1
            return
        copies = 1
        if world.chance(weather.duplication):
            self.repeated += 1
            copies = 2
        released_us = self._released_us(source, target)
        delay_us_max = weather.driver_delay_us_max if driver else weather.delay_us_max
        for _ in range(copies):
            at_us = released_us + world.between(10, delay_us_max)
            if not weather.reorders:
                at_us = self._last_us[source, target] = max(at_us, self._last_us.get((source, target), 0))
            world.at(at_us, label, deliver)
