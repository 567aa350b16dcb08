"""What a source of a workload file draws, checked, and the generator that draws it; `load` plans, `workload` builds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np

import penstock as ps
from penstock.connectors.draws import below, random_words, stream_keys, unit
from penstock.connectors.generator import Generator
from penstock.connectors.rates import RateSchedule, Segment
from penstock.errors import PenstockError, SourceMissing
from penstock_bench.files import distributions
from penstock_bench.files.distributions import DRAWN, Discrete, Kind, kind_of
from penstock_bench.files.messages import Identity, Message
from penstock_bench.files.model import KEYS_MAX, LENGTH_MAX, RATE_MAX, Source
from penstock_bench.files.problems import Problem, not_allowed


class Given:
    """Parameters that are given for a distribution; what is wrong with them is added to the problems."""

    def __init__(self, kind: Kind, params: msgspec.Struct, path: str, problems: list[Problem]) -> None:
        self.kind = kind
        self._path = path
        self._problems = problems
        self._known = params.__struct_fields__
        self._values = {name: value for name in self._known if (value := getattr(params, name)) is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def get(self, name: str, default: Any) -> Any:
        """Return a parameter that may be left out."""
        return self._values.get(name, default)

    def are(self, *needs: str, may: tuple[str, ...] = ()) -> bool:
        """Check that all of ``needs`` are there, and nothing else but what ``may`` be."""
        allowed = ", ".join([*needs, *may]) or "(none)"
        before = len(self._problems)
        for name in self._values:
            if name not in (*needs, *may):
                self.refuse(name, f"it is not a parameter of {self.kind.value}. Allowed: {allowed}.")
        for name in needs:
            if name not in self._values:
                self.refuse(name, f"missing: {self.kind.value} needs it. Allowed: {allowed}.")
        return len(self._problems) == before

    def range(self, most: int) -> tuple[int, int] | None:
        """Return ``lower`` and ``upper`` if they are a range up to ``most``."""
        low, high = self["lower"], self["upper"]
        if low <= high <= most:
            return low, high
        self._problems.append(not_allowed(f"{self._path}.upper", high, f"from lower={low} to {most}"))
        return None

    def refuse(self, name: str, what: str) -> None:
        """Note what is wrong with a parameter."""
        self._problems.append(Problem(f"{self._path}.{name}" if name else self._path, what))


DRAWN_RATES = 3_600
"""A rate that is drawn for every second starts again after so many."""


@dataclass(frozen=True)
class SourcePlan:
    """What one source draws.

    Attributes
    ----------
    keys, lengths : Discrete
        The number in ``keyX``, and the number of letters.
    schedule : RateSchedule
        When messages are due.
    rate_text : str
        The schedule in words.
    place, sources : int
        The source's place among so many in the file.
    """

    name: str
    keys: Discrete
    lengths: Discrete
    schedule: RateSchedule
    rate_text: str
    place: int
    sources: int
    seed: int

    @property
    def rate_eps(self) -> float:
        """Mean rate, of the part that repeats if one does."""
        return mean_eps(self.schedule)

    def generator(
        self, rate: float | RateSchedule | None, *, total: int | None, partitions: int | None, seed: int
    ) -> Generator:
        """Return the source; ``seed`` comes on top of the file's."""
        name = f"{self.seed + seed}/{self.name}".encode()
        own_seed = int.from_bytes(hashlib.sha256(name).digest()[:7], "little")
        fields = {
            "key": ps.fields.choice(
                [f"key{self.keys.low + i}" for i in range(self.keys.count)], weights=self.keys.weights
            ),
            "value": Message(self.lengths),
            "time": ps.fields.event_time(unit="us"),
            "id": Identity(self.place, self.sources),
        }
        return ps.generator(fields, rate=rate, seed=own_seed, total=total, partitions=partitions, format="columns")


def mean_eps(schedule: RateSchedule) -> float:
    """Mean rate of a schedule: of the part that repeats, or of all the steps that it names."""
    segments = schedule.segments[schedule.repeat_from or 0 :]
    return sum(each.rate_eps * each.duration_us for each in segments) / sum(each.duration_us for each in segments)


def plan_source(
    name: str,
    source: Source,
    path: str,
    place: int,
    sources: int,
    seed: int,
    near: Path,
    problems: list[Problem],
) -> SourcePlan | None:
    """Check what a source draws; what is wrong is added to the problems."""
    found = len(problems)
    keys = _keys(source, path, problems)
    lengths = _lengths(source, path, problems)
    rate = _rate(source, path, f"{seed}/{name}", near, problems)
    if keys is None or lengths is None or rate is None or len(problems) > found:
        return None
    return SourcePlan(name, keys, lengths, *rate, place, sources, seed)


def _keys(source: Source, at: str, problems: list[Problem]) -> Discrete | None:
    kind = kind_of(source.key_dist, DRAWN, f"{at}.key_dist", problems)
    if kind is None:
        return None
    given = Given(kind, source.key_dist_params, f"{at}.key_dist_params", problems)
    inner = given.get("num_keys", source.num_keys)
    count = source.num_keys if source.num_keys is not None else inner
    if inner != count:
        problems.append(Problem(f"{at}.num_keys", f"it is {count}, but key_dist_params.num_keys is {inner}."))
    match kind:
        case Kind.CONSTANT:
            if not given.are(may=("value", "num_keys")):
                return None
            return distributions.uniform(given.get("value", 0), given.get("value", 0))
        case Kind.UNIFORM if "lower" in given or "upper" in given or count is None:
            # The original tool counts its keys so; whatever the bounds are, keys are numbered from 0.
            bounds = given.range(KEYS_MAX) if given.are("lower", "upper", may=("num_keys",)) else None
            if bounds is None:
                return None
            if count not in (None, bounds[1] - bounds[0] + 1):
                given.refuse("num_keys", f"it is {count}, but lower and upper say {bounds[1] - bounds[0] + 1}.")
            return distributions.uniform(0, bounds[1] - bounds[0])
    if count is None:
        given.refuse("num_keys", f"missing: {kind.value} needs the number of keys.")
        return None
    return _drawn(given, 0, count - 1, count, may=("num_keys",))


def _lengths(source: Source, at: str, problems: list[Problem]) -> Discrete | None:
    kind = kind_of(source.msg_dist, DRAWN, f"{at}.msg_dist", problems)
    if kind is None:
        return None
    given = Given(kind, source.msg_dist_params, f"{at}.msg_dist_params", problems)
    if kind is not Kind.CONSTANT:
        return _whole(given, LENGTH_MAX)
    if not given.are("value"):
        return None
    if given["value"] > LENGTH_MAX:
        given.refuse("value", f"{given['value']} is not allowed. Allowed: at most {LENGTH_MAX}.")
        return None
    return distributions.uniform(given["value"], given["value"])


def _whole(given: Given, most: int) -> Discrete | None:
    """Return a distribution over the whole numbers up to so many, which has its own bounds where it needs some."""
    match given.kind:
        case Kind.UNIFORM:
            bounds = given.range(most) if given.are("lower", "upper") else None
            return None if bounds is None else distributions.uniform(*bounds)
        case Kind.ZIPF:
            word = "num_keys" if "num_keys" in given else "num_elements"
            return (
                distributions.zipf(min(given[word], most), given["exponent"]) if given.are(word, "exponent") else None
            )
    return _drawn(given, 0, most, most)


def _drawn(given: Given, low: int, high: int, count: int, may: tuple[str, ...] = ()) -> Discrete | None:
    """Return a distribution over a range; Zipf's law begins at its low end."""
    match given.kind:
        case Kind.UNIFORM:
            return distributions.uniform(low, high) if given.are(may=may) else None
        case Kind.ZIPF:
            return distributions.zipf(count, given["exponent"], low) if given.are("exponent", may=may) else None
        case Kind.NORMAL:
            if not given.are("mean", "sd", may=may):
                return None
            found = distributions.normal(given["mean"], given["sd"], low, high)
        case _:
            if not given.are("mean", may=may):
                return None
            found = distributions.poisson(given["mean"], low, high)
    if found is None:
        given.refuse("mean", f"{given['mean']:g} is not allowed. Allowed: a mean near the range {low} to {high}.")
    return found


def _rate(source: Source, at: str, label: str, near: Path, problems: list[Problem]) -> tuple[RateSchedule, str] | None:
    kind = kind_of(source.rate_dist, tuple(Kind), f"{at}.rate_dist", problems)
    if kind is None:
        return None
    given = Given(kind, source.rate_dist_params, f"{at}.rate_dist_params", problems)
    if kind in DRAWN and "rate" in given:
        # So the original tool has it: whatever the distribution, a rate is the rate.
        return (ps.rates.constant(given["rate"]), f"{given['rate']:,g}/s") if given.are("rate") else None
    try:
        return _schedule(given, label, near)
    except SourceMissing as error:
        given.refuse("path", f"{error.what} {error.hint}".strip())
    except PenstockError as error:
        given.refuse("", f"{error.what} {error.hint}".strip())
    return None


def _schedule(given: Given, label: str, near: Path) -> tuple[RateSchedule, str] | None:
    match given.kind:
        case Kind.CONSTANT:
            given.are("rate")
            return None
        case Kind.TRACE:
            if not given.are("path", may=("scale", "speed")):
                return None
            made = ps.rates.trace(near / given["path"], scale=given.get("scale", 1.0), speed=given.get("speed", 1.0))
            return made, f"as in {given['path']}, {mean_eps(made):,.0f}/s on average"
        case Kind.BURST:
            if not given.are("base", "peak", may=("every", "length", "first")):
                return None
            timing = {name: given[name] for name in ("every", "length", "first") if name in given}
            return ps.rates.burst(base=given["base"], peak=given["peak"], **timing), (
                f"bursts from {given['base']:,g}/s to {given['peak']:,g}/s"
            )
        case Kind.STEPS:
            if not given.are("steps"):
                return None
            made = ps.rates.steps([(step.duration, step.rate) for step in given["steps"]])
            return made, "steps of " + ", ".join(f"{step.rate:,g}/s" for step in given["steps"])
    rates = _drawn_rates(given, label)
    if rates is None:
        return None
    schedule = RateSchedule(tuple(Segment(1_000_000, rate) for rate in rates), repeat_from=0)
    return schedule, f"{given.kind.value}, a new rate every second, {mean_eps(schedule):,.0f}/s on average"


def _drawn_rates(given: Given, label: str) -> list[float] | None:
    """Draw the number of messages of every second."""
    words = random_words(np.array(stream_keys(0, label, 1), dtype=np.uint64), np.arange(DRAWN_RATES, dtype=np.uint64))
    if given.kind is Kind.NORMAL:
        if not given.are("mean", "sd"):
            return None
        shape = NormalDist(given["mean"], given["sd"])
        return [max(round(shape.inv_cdf(u)), 0.0) for u in np.maximum(unit(words[0]), 2.0**-53).tolist()]
    found = _whole(given, RATE_MAX)
    if found is None:
        return None
    # A picker has no room for as many places as there are rates.
    drawn = below(words[0], found.count) if found.weights is None else found.picker(words[0])
    rates: list[float] = (drawn + found.low).astype(float).tolist()
    return rates
