"""What a source of a workload file draws, checked, and the generator that draws it; `load` plans, `workload` builds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, NoReturn

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


class Refused(Exception):
    """What is wrong with a source's parameters is among the problems; nothing can be made of them."""


class Given:
    """Parameters that are given for a distribution; what is wrong with them is added to the problems."""

    def __init__(self, kind: Kind, params: msgspec.Struct, path: str, problems: list[Problem]) -> None:
        self.kind = kind
        self._path = path
        self._problems = problems
        self.values = {name: value for name, value in msgspec.structs.asdict(params).items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def need(self, *needs: str, may: tuple[str, ...] = ()) -> None:
        """Refuse what is given unless all of ``needs`` are there, and nothing else but what ``may`` be."""
        allowed = ", ".join([*needs, *may]) or "(none)"
        unknown = [name for name in self.values if name not in (*needs, *may)]
        missing = [name for name in needs if name not in self.values]
        for name in unknown:
            self.note(name, f"it is not a parameter of {self.kind.value}. Allowed: {allowed}.")
        for name in missing:
            self.note(name, f"missing: {self.kind.value} needs it. Allowed: {allowed}.")
        if unknown or missing:
            raise Refused

    def range(self, most: int, may: tuple[str, ...] = ()) -> tuple[int, int]:
        """Return ``lower`` and ``upper`` if they are a range up to ``most``."""
        self.need("lower", "upper", may=may)
        low, high = self["lower"], self["upper"]
        if low <= high <= most:
            return low, high
        self._problems.append(not_allowed(f"{self._path}.upper", high, f"from lower={low} to {most}"))
        raise Refused

    def note(self, name: str, what: str) -> None:
        self._problems.append(Problem(f"{self._path}.{name}" if name else self._path, what))

    def refuse(self, name: str, what: str) -> NoReturn:
        self.note(name, what)
        raise Refused


DRAWN_RATES = 3_600  # a rate that is drawn for every second starts again after so many


@dataclass(frozen=True)
class SourcePlan:
    """What one source draws: the one at a ``place`` among so many in the file."""

    name: str
    keys: Discrete  # the numbers in ``keyX``
    lengths: Discrete  # the numbers of letters
    schedule: RateSchedule
    rate_text: str  # the schedule in words
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
        keys = [f"key{self.keys.low + i}" for i in range(self.keys.count)]
        fields = {
            "key": ps.fields.choice(keys, weights=self.keys.weights),
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
    name: str, source: Source, path: str, place: int, sources: int, seed: int, near: Path, problems: list[Problem]
) -> SourcePlan | None:
    """Check what a source draws; what is wrong is added to the problems."""
    before = len(problems)
    parts: list[Any] = []
    for make in (_keys, _lengths, partial(_rate, label=f"{seed}/{name}", near=near)):
        try:
            parts.append(make(source, path, problems))
        except Refused:
            continue
    if len(problems) > before:
        return None
    keys, lengths, (schedule, rate_text) = parts
    return SourcePlan(name, keys, lengths, schedule, rate_text, place, sources, seed)


def _given(word: str, allowed: tuple[Kind, ...], params: msgspec.Struct, path: str, problems: list[Problem]) -> Given:
    kind = kind_of(word, allowed, path, problems)
    if kind is None:
        raise Refused
    return Given(kind, params, f"{path}_params", problems)


def _keys(source: Source, at: str, problems: list[Problem]) -> Discrete:
    given = _given(source.key_dist, DRAWN, source.key_dist_params, f"{at}.key_dist", problems)
    inner = given.values.get("num_keys", source.num_keys)
    count = source.num_keys if source.num_keys is not None else inner
    if inner != count:
        problems.append(Problem(f"{at}.num_keys", f"it is {count}, but key_dist_params.num_keys is {inner}."))
    if given.kind is Kind.CONSTANT:
        given.need(may=("value", "num_keys"))
        return distributions.uniform(given.values.get("value", 0), given.values.get("value", 0))
    if given.kind is Kind.UNIFORM and ("lower" in given or "upper" in given or count is None):
        # The original tool counts its keys so; whatever the bounds are, keys are numbered from 0.
        low, high = given.range(KEYS_MAX, may=("num_keys",))
        if count not in (None, high - low + 1):
            given.note("num_keys", f"it is {count}, but lower and upper say {high - low + 1}.")
        return distributions.uniform(0, high - low)
    if count is None:
        given.refuse("num_keys", f"missing: {given.kind.value} needs the number of keys.")
    return _drawn(given, 0, count - 1, count, may=("num_keys",))


def _lengths(source: Source, at: str, problems: list[Problem]) -> Discrete:
    given = _given(source.msg_dist, DRAWN, source.msg_dist_params, f"{at}.msg_dist", problems)
    if given.kind is not Kind.CONSTANT:
        return _whole(given, LENGTH_MAX)
    given.need("value")
    if given["value"] > LENGTH_MAX:
        given.refuse("value", f"{given['value']} is not allowed. Allowed: at most {LENGTH_MAX}.")
    return distributions.uniform(given["value"], given["value"])


def _whole(given: Given, most: int) -> Discrete:
    """Return a distribution over the whole numbers up to so many, which has its own bounds where it needs some."""
    match given.kind:
        case Kind.UNIFORM:
            return distributions.uniform(*given.range(most))
        case Kind.ZIPF:
            word = "num_keys" if "num_keys" in given else "num_elements"
            given.need(word, "exponent")
            return distributions.zipf(min(given[word], most), given["exponent"])
    return _drawn(given, 0, most, most)


_NEEDS = {Kind.UNIFORM: (), Kind.ZIPF: ("exponent",), Kind.NORMAL: ("mean", "sd"), Kind.POISSON: ("mean",)}


def _drawn(given: Given, low: int, high: int, count: int, may: tuple[str, ...] = ()) -> Discrete:
    """Return a distribution over a range; Zipf's law begins at its low end."""
    given.need(*_NEEDS[given.kind], may=may)
    match given.kind:
        case Kind.UNIFORM:
            return distributions.uniform(low, high)
        case Kind.ZIPF:
            return distributions.zipf(count, given["exponent"], low)
        case Kind.NORMAL:
            found = distributions.normal(given["mean"], given["sd"], low, high)
        case _:
            found = distributions.poisson(given["mean"], low, high)
    if found is None:
        allowed = f"a mean near the range {low} to {high}"
        given.refuse("mean", f"{given['mean']:g} is not allowed. Allowed: {allowed}.")
    return found


def _rate(source: Source, at: str, problems: list[Problem], *, label: str, near: Path) -> tuple[RateSchedule, str]:
    given = _given(source.rate_dist, tuple(Kind), source.rate_dist_params, f"{at}.rate_dist", problems)
    if given.kind is Kind.CONSTANT or (given.kind in DRAWN and "rate" in given):
        # So the original tool has it: whatever the distribution, a rate is the rate.
        given.need("rate")
        return ps.rates.constant(given["rate"]), f"{given['rate']:,g}/s"
    try:
        return _schedule(given, label, near)
    except PenstockError as error:
        given.refuse("path" if isinstance(error, SourceMissing) else "", f"{error.what} {error.hint}".strip())


def _schedule(given: Given, label: str, near: Path) -> tuple[RateSchedule, str]:
    match given.kind:
        case Kind.TRACE:
            given.need("path", may=("scale", "speed"))
            options = {name: value for name, value in given.values.items() if name != "path"}
            made = ps.rates.trace(near / given["path"], **options)
            return made, f"as in {given['path']}, {mean_eps(made):,.0f}/s on average"
        case Kind.BURST:
            given.need("base", "peak", may=("every", "length", "first"))
            return ps.rates.burst(**given.values), f"bursts from {given['base']:,g}/s to {given['peak']:,g}/s"
        case Kind.STEPS:
            given.need("steps")
            made = ps.rates.steps([(step.duration, step.rate) for step in given["steps"]])
            return made, "steps of " + ", ".join(f"{step.rate:,g}/s" for step in given["steps"])
    rates = _drawn_rates(given, label)
    schedule = RateSchedule(tuple(Segment(1_000_000, rate) for rate in rates), repeat_from=0)
    return schedule, f"{given.kind.value}, a new rate every second, {mean_eps(schedule):,.0f}/s on average"


def _drawn_rates(given: Given, label: str) -> list[float]:
    words = random_words(np.array(stream_keys(0, label, 1), dtype=np.uint64), np.arange(DRAWN_RATES, dtype=np.uint64))
    if given.kind is Kind.NORMAL:
        given.need("mean", "sd")
        shape = NormalDist(given["mean"], given["sd"])
        return [max(round(shape.inv_cdf(u)), 0.0) for u in np.maximum(unit(words[0]), 2.0**-53).tolist()]
    found = _whole(given, RATE_MAX)
    # A picker has no room for as many places as there are rates.
    drawn = below(words[0], found.count) if found.weights is None else found.picker(words[0])
    rates: list[float] = (drawn + found.low).astype(float).tolist()
    return rates
