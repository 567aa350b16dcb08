"""What a scenario draws for its input, its network and its faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from penstock.control.scheduler import START_DELAY_US
from penstock.testing.simulation.faults import (
    EXCHANGE_MOMENTS,
    MOVE_MOMENTS,
    SLOT_ACTIONS,
    SWITCH_MOMENTS,
    Action,
    Fault,
    Moment,
)
from penstock.testing.simulation.network import Weather
from penstock.testing.simulation.oracle import WINDOW_US, Row
from penstock.testing.simulation.world import START_US

SILENCE_US = 2_500_000
_MOMENTS = [moment for moment in Moment if moment not in (*SWITCH_MOMENTS, *EXCHANGE_MOMENTS, *MOVE_MOMENTS)]
_OFTEN = [Moment.MARKER, Moment.STORING, Moment.STORED, Moment.EPOCH_DONE, Moment.RECORDED, Moment.COMMIT]
_RECOVERY = [Moment.REGISTERED, Moment.RESTART, Moment.ROLLBACK, Moment.ROLLED_BACK, Moment.RESUME]
_AT_ONE = [Action.KILL_IT, Action.KILL_IT, Action.KILL_IT, Action.KILL_OTHER, Action.KILL_TWO, Action.FREEZE]
_AT_ANY_TIME = [*_AT_ONE, Action.ISOLATE, Action.CUT, Action.RETRY]
_OF_DRIVER = [Action.KILL_DRIVER, Action.KILL_DRIVER, Action.DRAIN]


@dataclass(frozen=True)
class Pin:
    """The user settles a unit's forms: which operations, is for shares of 1 to say, whatever pipeline it is."""

    at_us: int
    unit: float
    first: float
    last: float
    back: bool
    """All in record form."""
    free: bool
    """All left to the control loop."""


def draw_partitions(random: Random, length_us: int, *, late: bool) -> list[list[Row]]:
    """Records at random times; event time is the time at which they are due, or before it where some may be late."""
    keys = [f"k{i}" for i in range(random.choice([1, 3, 8]))]
    partitions: list[list[Row]] = []
    for partition in range(random.choice([1, 2, 3, 4])):
        counts: Counter[str] = Counter()
        rows: list[Row] = []
        times = sorted(random.randrange(length_us) for _ in range(random.choice([0, 5, 20, 40])))
        for seq, time_us in enumerate(times):
            key = random.choice(keys)
            counts[key] += 1
            back_us = random.choice([0, 0, WINDOW_US, 3 * WINDOW_US]) if late else 0
            rows.append((partition, seq, key, counts[key], START_US + time_us - back_us))
        partitions.append(rows)
    if not any(partitions):
        partitions[0].append((0, 0, keys[0], 1, START_US))
    return partitions


def draw_weather(random: Random) -> Weather:
    """How the network behaves."""
    delay_us_max, driver_delay_us_max = random.choices([100, 2_000, 50_000], k=2)
    if random.random() < 0.3:
        return Weather(delay_us_max, driver_delay_us_max, reorders=False)
    loss, duplication = random.choice([0.0, 0.01, 0.1]), random.choice([0.0, 0.01, 0.2])
    return Weather(delay_us_max, driver_delay_us_max, loss, duplication, random.random() < 0.7)


def draw_faults(seed: int, random: Random, driver_dies: bool, length_us: int) -> list[Fault]:
    """The first fault's step goes through all steps as seeds go on, so that a range of seeds covers every one."""
    first = _MOMENTS[seed % len(_MOMENTS)]
    moments: list[Moment | None] = [first]
    for _ in range(random.choice([0, 0, 1, 2, 3])):
        moments.append(random.choice([*_MOMENTS, *[None] * 8]))
    if first in _RECOVERY:
        moments.append(random.choice([None, *_OFTEN]))  # which brings a recovery about
    faults = []
    for n, moment in enumerate(moments):
        action = random.choice(_AT_ONE if moment else _AT_ANY_TIME)
        if driver_dies and (n == 1 or random.random() < 0.5):
            action = random.choice(_OF_DRIVER)
        if first in _RECOVERY and n == len(moments) - 1:
            action = Action.KILL_IT
        faults.append(
            Fault(
                action,
                moment,
                random.choice([1, 1, 1, 2, 5]) if moment in _OFTEN else random.choice([1, 1, 2]),
                random.randrange(START_DELAY_US, START_DELAY_US + length_us),
                random.choice([20_000, 800_000, SILENCE_US + 500_000, SILENCE_US + 3_000_000]),
            )
        )
    return faults


def _rows_at(random: Random, partition: int, times: list[int], keys: int) -> list[Row]:
    """A row of a random key for each time."""
    counts: Counter[str] = Counter()
    rows: list[Row] = []
    for seq, time_us in enumerate(sorted(times)):
        key = f"k{random.randrange(keys)}"
        counts[key] += 1
        rows.append((partition, seq, key, counts[key], START_US + time_us))
    return rows


def draw_bursts(random: Random, length_us: int) -> list[list[Row]]:
    """A calm stream, and for a while far more records than record form carries."""
    partitions: list[list[Row]] = []
    begin_us = random.randrange(length_us // 5, length_us // 3)
    for partition in range(random.choice([1, 2])):
        times = [random.randrange(length_us) for _ in range(20)]
        times += [begin_us + random.randrange(100_000) for _ in range(random.choice([800, 1_200]))]
        partitions.append(_rows_at(random, partition, times, 3))
    return partitions


def draw_swell(random: Random, length_us: int, partitions: int) -> list[list[Row]]:
    """A calm stream, and for two seconds about twice of what a worker carries at 8 ms a record."""
    begin_us = random.randrange(length_us // 8, length_us // 4)
    found: list[list[Row]] = []
    for partition in range(partitions):
        times = [random.randrange(length_us) for _ in range(20)]
        times += [begin_us + random.randrange(2_000_000) for _ in range(random.choice([450, 550]) // partitions)]
        found.append(_rows_at(random, partition, times, 8))
    return found


def draw_steady(random: Random, length_us: int) -> list[list[Row]]:
    """400 records each second, of three keys."""
    counts: Counter[str] = Counter()
    rows: list[Row] = []
    for seq in range(length_us // 2_500):
        key = f"k{random.randrange(3)}"
        counts[key] += 1
        rows.append((0, seq, key, counts[key], START_US + 2_500 * seq))
    return [rows]


def draw_pins(random: Random, length_us: int, *, often: bool) -> list[Pin]:
    """When the user settles forms, and how."""
    between_us = 40_000 if often else random.choice([60_000, 200_000, 600_000])
    pins, at_us = [], START_DELAY_US
    while at_us < START_DELAY_US + length_us:
        first, last = sorted((random.random(), random.random()))
        pins.append(Pin(at_us, random.random(), first, last, random.random() < 0.35, random.random() < 0.1))
        at_us += random.randrange(between_us // 2, between_us * 3 // 2)
    return pins


@dataclass(frozen=True)
class Degree:
    """Somebody wants so many processes for a range of a unit; unit and range as in a `Pin`."""

    at_us: int
    unit: float
    first: float
    last: float
    degree: int


def draw_degrees(random: Random, length_us: int, most: int) -> list[Degree]:
    """When replicas are activated and deactivated; mostly of the range that has some."""
    between_us = random.choice([20_000, 60_000, 300_000])
    degrees, at_us = [], START_DELAY_US
    first, last, unit = 0.0, 0.99, random.random()
    while at_us < START_DELAY_US + length_us:
        if random.random() < 0.3:
            first, last = sorted((random.random(), random.random()))
            unit = random.random()
        degrees.append(Degree(at_us, unit, first, last, random.choice([1, *range(2, most + 2)])))
        at_us += random.randrange(between_us // 2, between_us * 3 // 2)
    return degrees


@dataclass(frozen=True)
class Wanted:
    """The user has the operation that has alternatives use one of them."""

    at_us: int
    alternative: str
    operation: str = "either"


def draw_exchanges(random: Random, length_us: int, names: Sequence[str]) -> list[Wanted]:
    """When the user wants another alternative, and which one: often the next one while the last is warmed up."""
    between_us = random.choice([20_000, 100_000, 300_000])
    exchanges, at_us = [], START_DELAY_US + random.randrange(between_us)
    while at_us < START_DELAY_US + length_us:
        exchanges.append(Wanted(at_us, random.choice(names)))
        at_us += random.randrange(between_us // 4, between_us * 2)
    return exchanges


def draw_exchange_faults(seed: int, random: Random, driver_dies: bool, length_us: int) -> list[Fault]:
    """As `draw_faults`; the first one's step goes through the steps of an exchange."""
    moments: list[Moment | None] = [EXCHANGE_MOMENTS[seed % len(EXCHANGE_MOMENTS)]]
    moments += random.choices([*EXCHANGE_MOMENTS, *_OFTEN, None], k=random.choice([0, 1, 1, 2]))
    faults = []
    for n, moment in enumerate(moments):
        action = random.choice(_AT_ONE if moment else _AT_ANY_TIME)
        if driver_dies and (not n or random.random() < 0.4):
            action = random.choice(_OF_DRIVER)
        nth, at_us = random.choice([1, 1, 2, 3]), random.randrange(START_DELAY_US, START_DELAY_US + length_us)
        faults.append(Fault(action, moment, nth, at_us, random.choice([20_000, 800_000, SILENCE_US + 500_000])))
    return faults


@dataclass(frozen=True)
class Scale:
    """The user wants the job to have so many workers."""

    at_us: int
    workers: int


def draw_scales(random: Random, length_us: int, most: int) -> list[Scale]:
    """When the user wants more workers or fewer: often again before the last wish has come true."""
    between_us = random.choice([20_000, 100_000, 400_000])
    scales, at_us = [], START_DELAY_US + random.randrange(between_us)
    while at_us < START_DELAY_US + length_us:
        scales.append(Scale(at_us, random.randint(1, most)))
        at_us += random.randrange(between_us // 4, between_us * 2)
    return scales


@dataclass(frozen=True)
class Regroup:
    """Some key groups of an instance are to go to another one; which, is for shares of 1 to say."""

    at_us: int
    unit: float
    old: float
    new: float
    share: float
    """Of the instance's groups."""


def draw_regroups(random: Random, length_us: int) -> list[Regroup]:
    """When key groups go elsewhere: often again before the last shift has come to its end."""
    between_us = random.choice([20_000, 100_000, 300_000])
    found, at_us = [], START_DELAY_US + random.randrange(between_us)
    while at_us < START_DELAY_US + length_us:
        share = random.choice([0.1, 0.5, 0.5, 1.0])
        found.append(Regroup(at_us, random.random(), random.random(), random.random(), share))
        at_us += random.randrange(between_us // 4, between_us * 2)
    return found


def draw_move_faults(seed: int, random: Random, driver_dies: bool, length_us: int) -> list[Fault]:
    """As `draw_faults`; the first one's step goes through the steps of a move, and of the recovery that it is like."""
    steps: list[Moment | None] = [*MOVE_MOMENTS, *_RECOVERY]
    moments = [steps[seed % len(steps)]]
    moments += random.choices([*steps, *_OFTEN, None, None], k=random.choice([0, 1, 1, 2, 3]))
    faults = []
    for n, moment in enumerate(moments):
        action = random.choice(_AT_ONE if moment else _AT_ANY_TIME)
        if driver_dies and (not n or random.random() < 0.4):
            action = random.choice(_OF_DRIVER)
        nth, at_us = random.choice([1, 1, 2, 3]), random.randrange(START_DELAY_US, START_DELAY_US + length_us)
        faults.append(Fault(action, moment, nth, at_us, random.choice([20_000, 800_000, SILENCE_US + 500_000])))
    return faults


def first_moment(seed: int) -> Moment:
    """Which step of a switch the first fault of a seed strikes at."""
    return SWITCH_MOMENTS[seed % len(SWITCH_MOMENTS)]


def draw_switch_faults(seed: int, random: Random, driver_dies: bool, length_us: int) -> list[Fault]:
    """As `draw_faults`; the first one's step goes through the steps of a switch."""
    moments: list[Moment | None] = [first_moment(seed)]
    for _ in range(random.choice([0, 1, 2, 3])):
        moments.append(random.choice([*SWITCH_MOMENTS, *_MOMENTS, *[None] * 10]))
    faults = []
    for n, moment in enumerate(moments):
        action = random.choice([*_AT_ONE, *SLOT_ACTIONS] if moment else [*_AT_ANY_TIME, *SLOT_ACTIONS])
        if driver_dies and (n == 1 or random.random() < 0.4):
            action = random.choice([*_OF_DRIVER, Action.HOST_ENDS])
        faults.append(
            Fault(
                action,
                moment,
                1 if moment is Moment.CLOSING else random.choice([1, 1, 2, 3, 8]),
                random.randrange(START_DELAY_US, START_DELAY_US + length_us),
                random.choice([20_000, 800_000, SILENCE_US + 500_000]),
            )
        )
    return faults
