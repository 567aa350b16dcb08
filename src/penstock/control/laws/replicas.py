"""PS-1: how many replicas each operation needs in the next interval; `control/replicating.py` asks. Pure.

Nothing is benchmarked beforehand: execution times are those of the interval that has just ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isfinite

from penstock.control.laws.forecast import Forecast

INPUT = ""
"""Name under which `Operator.received` counts what comes from outside, not from another operation."""
ROUNDING = 1e-9
"""A need this little above a whole number is that number: 3.0000000001 replicas are 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operation during one interval t, over all of its replicas.

    Attributes
    ----------
    received : mapping of str to float
        λ_i^p, the records that came from each predecessor; from `INPUT` what comes from outside.
    processed : float
        μ_i, the records that it has finished.
    queue : float
        |q_i|, the records that wait at the end of the interval.
    execution_us : float
        et_i, time for one record, waiting for its turn not included.
    replicas : int
        Replicas that were active.
    least, most : int
        Bounds of their number.
    """

    name: str
    received: Mapping[str, float]
    processed: float
    queue: float
    execution_us: float
    replicas: int = 1
    least: int = 1
    most: int = 1_000_000

    @property
    def arrived(self) -> float:
        """λ_i^r, the records that came from anywhere."""
        return sum(self.received.values())

    def utilisation(self, interval_us: float) -> float:
        """U = μ·et/td of one replica on average, between 0 and 1."""
        room_us = max(1, self.replicas) * interval_us
        return min(1.0, max(0.0, self.processed * self.execution_us) / room_us) if room_us > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Need:
    """What the law says of one operation.

    Attributes
    ----------
    share : float
        θ_i, records that come here for each one from outside.
    received, queued : float
        λ̂_i^r(t+1) and λ̂_i^q(t+1), records to be expected in the next interval and those that wait already.
    work : float
        λ̂·et/td: replicas that would be busy all the time, not rounded.
    replicas : int
        r_i(t+1).
    """

    share: float
    received: float
    queued: float
    work: float
    replicas: int


@dataclass(frozen=True, slots=True)
class Policy:
    """How closely replicas follow the need. The defaults are the paper's: PS-1 as written.

    Attributes
    ----------
    reserve : float
        Share of a replica's time that is kept free, so that records need not queue.
    delta : float
        Hysteresis: replicas are given back when the need is below what is left of them by this share.
    through : bool
        Whether records that wait before an operation count for those behind it too, which they reach within the next
        interval. The paper names that as future work.
    drain : float
        What waits is worked off within an interval, or within so many execution times if that is longer: a queue of ten
        records is no reason for ten replicas.
    """

    reserve: float = 0.0
    delta: float = 0.0
    through: bool = False
    drain: float = 0.0


PAPER = Policy()
OURS = Policy(reserve=0.05, delta=0.05, through=True, drain=5.0)


@dataclass(slots=True)
class Shares:
    """θ_i^p of the last interval in which a predecessor has finished something: calm must not look like a filter."""

    _known: dict[tuple[str, str], float] = field(default_factory=dict)

    def of(self, operators: Sequence[Operator], incoming: float) -> dict[str, dict[str, float]]:
        """θ_i^p = λ_i^p/μ_p by operation and predecessor; the outside has sent ``incoming``."""
        finished = {each.name: each.processed for each in operators} | {INPUT: incoming}
        for each in operators:
            for origin, came in each.received.items():
                if finished[origin] > 0:
                    self._known[each.name, origin] = max(0.0, came) / finished[origin]
        return {
            each.name: {origin: self._known.get((each.name, origin), 0.0) for origin in each.received}
            for each in operators
        }


def graph_order(origins: Mapping[str, Sequence[str]]) -> list[str]:
    """Return operations so that each comes behind those that its records come from.

    Parameters
    ----------
    origins : mapping of str to sequence of str
        The predecessors of each operation; `INPUT` and others that are no keys count as outside.

    Raises
    ------
    ValueError
        If an operation is its own predecessor, over however many others.
    """
    order: list[str] = []
    done: set[str] = set()
    under_way: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name in done or name not in origins:
            return
        if name in under_way:
            raise ValueError(f"'{name}' gets records from itself")
        under_way.add(name)
        for origin in origins[name]:
            yield from visit(origin)
        done.add(name)
        yield name

    for name in origins:
        order += visit(name)
    return order


def theta(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """θ_i = Σ_p θ_i^p·θ_p in graph order; that of the outside is 1.

    Examples
    --------
    Figure 5 of the paper: a split into 70 and 30 %, and a merge of 40 % of one branch with all of the other.

    >>> parts = {"1": {INPUT: 1.0}, "2": {"1": 0.7}, "3": {"1": 0.3}, "4": {"2": 0.4, "3": 1.0}}
    >>> round(theta(parts)["4"], 2)
    0.58
    """
    found = {INPUT: 1.0}
    for name in graph_order({name: list(part) for name, part in parts.items()}):
        found[name] = sum(share * found.get(origin, 0.0) for origin, share in parts[name].items())
    del found[INPUT]
    return found


def replicas_for(work: float, *, present: int, least: int, most: int, policy: Policy = PAPER) -> int:
    """How many replicas do ``work`` replicas' worth of work; not fewer than now unless hysteresis allows it."""
    if not isfinite(work):
        return most if work > 0 else max(least, min(present, most))
    needed = ceil(max(0.0, work) / (1 - policy.reserve) - ROUNDING)
    if needed < present:
        needed = min(present, ceil(max(0.0, work) * (1 + policy.delta) / (1 - policy.reserve) - ROUNDING))
    return max(least, min(needed, most))


def needs(
    operators: Sequence[Operator],
    interval_us: float,
    *,
    incoming: float,
    expected: float | None = None,
    shares: Shares | None = None,
    policy: Policy = PAPER,
) -> dict[str, Need]:
    """Analyse one interval in graph order and plan the next one.

    Parameters
    ----------
    incoming : float
        λ_G(t), records that came from outside in the interval.
    expected : float, optional
        Records that will come from outside in the next one, if a forecast says so; else as many as in this one.
    shares : Shares, optional
        Remembers θ between intervals.

    Examples
    --------
    Table II of the paper:

    >>> table = [
    ...     Operator(name="1", received={INPUT: 100}, processed=140, queue=0, execution_us=16_600),
    ...     Operator(name="2", received={"1": 117}, processed=120, queue=7, execution_us=25_000),
    ...     Operator(name="3", received={"2": 90}, processed=90, queue=20, execution_us=100_000),
    ... ]
    >>> [need.replicas for need in needs(table, 1_000_000, incoming=100).values()]
    [2, 3, 9]
    """
    parts = (shares or Shares()).of(operators, incoming)
    by_name = {each.name: each for each in operators}
    thetas = theta(parts)
    source = incoming if expected is None else expected
    found: dict[str, Need] = {}
    for name in graph_order({name: list(part) for name, part in parts.items()}):
        own = by_name[name]
        queued = max(0.0, own.queue)
        if policy.through:
            queued += sum(part * found[origin].queued for origin, part in parts[name].items() if origin in found)
        received = max(0.0, source) * thetas[name]
        execution_us = max(0.0, own.execution_us)
        drain_us = max(interval_us, policy.drain * execution_us)
        work = received * execution_us / interval_us + queued * execution_us / drain_us if interval_us > 0 else 0.0
        number = replicas_for(work, present=own.replicas, least=own.least, most=own.most, policy=policy)
        found[name] = Need(thetas[name], received, queued, work, number)
    return {each.name: found[each.name] for each in operators}


class Predictive:
    """PS-1 from interval to interval: remembers θ, expects what its forecast says, gives back what stays unneeded.

    The forecast only adds: replicas are ready before a rise, and are never given back for a fall that is only expected.

    Parameters
    ----------
    policy : Policy
        How closely replicas follow the need.
    forecast : Forecast, optional
        Of what comes from outside in an interval.
    hold : int
        Replicas are given back when as many intervals in a row had no use for them.
    """

    def __init__(self, policy: Policy = PAPER, forecast: Forecast | None = None, hold: int = 1) -> None:
        self._policy = policy
        self._forecast = forecast
        self._hold = hold
        self._shares = Shares()
        self._works: dict[str, deque[float]] = {}
        self.expected = 0.0
        """What was expected from outside for the next interval at the last look."""

    def decide(self, operators: Sequence[Operator], interval_us: float, incoming: float) -> dict[str, Need]:
        """Take the figures of an interval, and say what the next one needs."""
        self.expected = incoming
        if self._forecast is not None:
            self._forecast.add(incoming)
            self.expected = max(incoming, self._forecast.ahead())
        found = needs(
            operators,
            interval_us,
            incoming=incoming,
            expected=self.expected,
            shares=self._shares,
            policy=self._policy,
        )
        for each in operators:
            need = found[each.name]
            works = self._works.setdefault(each.name, deque(maxlen=self._hold))
            works.append(need.work)
            if need.replicas < each.replicas:
                kept = replicas_for(
                    max(works), present=each.replicas, least=each.least, most=each.most, policy=self._policy
                )
                found[each.name] = replace(need, replicas=kept)
        return found
