"""Operations with replicas as queues in made-up time: every record on its way, a scaler that acts at every interval.

Fast and exact, for what a machine of two cores cannot run: it has no processes, no messages and no costs of its own.
Rows of the study that come from here say so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from random import Random

from penstock.control.laws.replicas import INPUT, Operator

DEGRADATION_S = 30.0
"""The paper's interval for throughput in and out."""
GRACE_S = 1.0
"""What is under way when the input ends counts as processed if it is through by the interval's end after this."""
Scaler = Callable[[Sequence[Operator], float, float], Mapping[str, int]]
"""Figures of an interval, its length in µs, and what came from outside: how many replicas each operation shall have."""


class Grouping(Enum):
    """Who gets the next record."""

    LINE = "line"
    """Whoever is free first: records wait in one line, as in Penstock's replicas."""
    BALANCED = "load balancing"
    """Algorithm 1 of the paper: the least utilised; a queue before every replica."""
    SHUFFLE = "shuffle"
    """Anyone; a queue before every replica."""


@dataclass(frozen=True, kw_only=True)
class Service:
    name: str
    execution_s: float
    shares: Mapping[str, float] = field(default_factory=lambda: {INPUT: 1.0})
    """Which part of what each predecessor has finished comes here."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    interval_s: float = 1.0
    """td."""
    replicas: int = 1
    least: int = 1
    most: int = 8
    grouping: Grouping = Grouping.LINE
    timeout_s: float | None = None
    bound: int | None = None
    """t_out and q_size; None: nothing is dropped."""
    down_s: float = 0.0
    """How long everything stands still at each change, as where the topology is started again."""
    drops: bool = False
    """Whether what is queued is lost by that."""


@dataclass
class Outcome:
    received: int = 0
    dropped: int = 0
    latencies_s: list[tuple[float, float]] = field(default_factory=list)
    """When each record was through, and how long it took."""
    replica_s: float = 0.0
    changes: int = 0
    """Intervals at whose end some number of replicas changed."""
    replicas: list[tuple[float, int]] = field(default_factory=list)
    seconds: float = 0.0
    arrivals_s: list[float] = field(default_factory=list)
    interval_s: float = DEGRADATION_S
    """Throughput in and out is compared over so long."""
    end_s: float = inf
    """What is through later than this was not processed in time."""

    def latency_ms(self, quantile: float) -> float:
        """Latency that this share of the records does not exceed."""
        ordered = sorted(latency for _, latency in self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else 0.0

    @property
    def mean_ms(self) -> float:
        return 1000 * sum(latency for _, latency in self.latencies_s) / max(1, len(self.latencies_s))

    def saved(self, over: int) -> float:
        """1 - r/r_over, over the whole run."""
        return 1 - self.replica_s / (over * self.seconds) if self.seconds else 0.0

    @property
    def processed(self) -> float:
        """Share of what was received that is through when the input ends, or a moment later."""
        return sum(at <= self.end_s for at, _ in self.latencies_s) / max(1, self.received)

    @property
    def degradation(self) -> float:
        """|in - out|/in, on average over intervals."""
        cells = max(1, round(self.seconds / self.interval_s))
        width = self.seconds / cells
        came = Counter(int(at / width) for at in self.arrivals_s)
        went = Counter(int(at / width) for at, _ in self.latencies_s)
        shares = [abs(came[cell] - went[cell]) / came[cell] for cell in range(cells) if came[cell]]
        return sum(shares) / max(1, len(shares))

    def over_s(self, target_ms: float) -> int:
        """Seconds in which the slowest record took longer than a target."""
        return len({int(at) for at, latency in self.latencies_s if 1000 * latency > target_ms})


Record = tuple[float, float]
"""When it arrives here, and when it was due."""


class _Replicas:
    def __init__(self, service: Service, setup: Setup, chance: Random) -> None:
        self.service = service
        self._setup = setup
        self._chance = chance
        self._free = [0.0] * setup.replicas
        """When each active replica has nothing more to do."""
        self._line: deque[Record] = deque()
        self._used = [0.0] * setup.replicas
        self._given_s = [0.0] * setup.replicas
        self._done_s = [0.0] * setup.replicas
        """Work that each replica with a queue of its own was given, and had done at the last look."""
        self._turn = 0
        self._through: list[Record] = []
        """Finished, some of them behind the end of the interval."""
        self.inbox: list[Record] = []
        self.received: dict[str, float] = dict.fromkeys(service.shares, 0)
        self.dropped = self.finished = 0

    @property
    def active(self) -> int:
        return len(self._free)

    def take(self, end_s: float) -> list[Record]:
        """Work on what has come up to the end of an interval; returns what is finished by then."""
        line = self._setup.grouping is Grouping.LINE
        # From several predecessors: in the order of time.
        for each in sorted(self.inbox) if len(self.service.shares) > 1 else self.inbox:
            (self._in_line if line else self._to_a_queue)(each)
        if line:
            self._work(end_s)
        through = sorted(self._through)
        gone = [each for each in through if each[0] < end_s]
        self.inbox, self._through, self.finished = [], through[len(gone) :], len(gone)
        return gone

    def _in_line(self, record: Record) -> None:
        bound = self._setup.bound
        if bound is not None:
            self._work(record[0])
            if len(self._line) >= bound:
                self.dropped += 1
                return
        self._line.append(record)

    def _work(self, until_s: float) -> None:
        line, free = self._line, self._free
        execution_s, timeout_s = self.service.execution_s, self._setup.timeout_s
        while line:
            came_s, due_s = line[0]
            begin_s = free[0] if free[0] > came_s else came_s
            if begin_s >= until_s:
                return
            line.popleft()
            if timeout_s is not None and begin_s - due_s > timeout_s:
                self.dropped += 1
                continue
            heapreplace(free, begin_s + execution_s)
            self._through.append((begin_s + execution_s, due_s))

    def _to_a_queue(self, record: Record) -> None:
        came_s, due_s = record
        execution_s, setup, free, used = self.service.execution_s, self._setup, self._free, self._used
        if setup.grouping is Grouping.SHUFFLE:
            chosen = self._chance.randrange(len(free))
        else:
            chosen = used.index(min(used))
            if used[chosen] >= 1.0:
                self._turn = chosen = (self._turn + 1) % len(used)
            else:
                used[chosen] = min(1.0, used[chosen] + execution_s / setup.interval_s)
        begin_s = max(came_s, free[chosen])
        waiting = (begin_s - came_s) / execution_s if execution_s else 0
        full = setup.bound is not None and waiting >= setup.bound
        if full or (setup.timeout_s is not None and begin_s - due_s > setup.timeout_s):
            self.dropped += 1
        else:
            free[chosen] = begin_s + execution_s
            self._given_s[chosen] += execution_s
            self._through.append((begin_s + execution_s, due_s))

    def look(self, end_s: float) -> Operator:
        """What the monitor sees at the end of an interval."""
        if self._setup.grouping is Grouping.LINE:
            queue = float(len(self._line))
        else:
            left_s = [max(0.0, free_s - end_s) for free_s in self._free]
            queue = sum(left_s) / max(1e-9, self.service.execution_s)
            done_s = [given - left for given, left in zip(self._given_s, left_s, strict=True)]
            self._used = [
                min(1.0, max(0.0, now - before) / self._setup.interval_s)
                for now, before in zip(done_s, self._done_s, strict=True)
            ]
            self._done_s = done_s
        received, self.received = self.received, dict.fromkeys(self.received, 0)
        return Operator(
            name=self.service.name,
            received=received,
            processed=self.finished,
            queue=queue,
            execution_us=1e6 * self.service.execution_s,
            replicas=self.active,
            least=self._setup.least,
            most=self._setup.most,
        )

    def scale(self, wanted: int, now_s: float) -> None:
        """Activate or deactivate replicas; what one has begun, or has queued, it still does."""
        if self._setup.grouping is Grouping.LINE:
            while self.active > wanted:
                heappop(self._free)
            while self.active < wanted:
                heappush(self._free, now_s)
        else:
            more = max(0, wanted - self.active)
            for each, value in ((self._free, now_s), (self._used, 0.0), (self._given_s, 0.0), (self._done_s, 0.0)):
                each[wanted:] = [value] * more

    def stand_still(self, until_s: float, drops: bool) -> None:
        """Start again: nothing is done for a while."""
        if drops:
            self.dropped += len(self._line) + len(self._through)
            self._line.clear()
            self._through.clear()
            self._free = [until_s] * self.active
        else:
            self._free = [max(each, until_s) for each in self._free]
        heapify(self._free)


def due_times(rates_eps: Sequence[float], chance: Random | None = None) -> Iterator[float]:
    """When records are due whose rate is given second by second: evenly spread, or by chance."""
    owed = 0.0
    for second, rate in enumerate(rates_eps):
        if chance is None:
            # What a second leaves over is due in the next one, so that low rates are not rounded away.
            count = int(owed + rate)
            first, owed = owed, owed + rate - count
            yield from (second + min(1.0, max(0.0, (number + 1 - first) / rate)) for number in range(count))
        else:
            at = chance.expovariate(rate) if rate > 0 else 1.0
            while at < 1.0:
                yield second + at
                at += chance.expovariate(rate)


def simulate(
    services: Sequence[Service], due_s: Sequence[float], setup: Setup, scaler: Scaler | None, seed: int = 1
) -> Outcome:
    """Let records go through operations, which are given in graph order; ``scaler`` None keeps replicas as they are.

    A record goes from an operation to one of those behind it, by their shares in turn, or ends there. The run is over
    a moment after the last record has come, as the paper's are: what still waits then is not processed.
    """
    chance = Random(seed)
    stages = [_Replicas(each, setup, chance) for each in services]
    behind: dict[str, list[tuple[_Replicas, float]]] = {}
    for stage in stages:
        for origin, share in stage.service.shares.items():
            behind.setdefault(origin, []).append((stage, share))
    owed: dict[tuple[str, str], float] = {}
    outcome = Outcome(received=len(due_s), seconds=due_s[-1] if due_s else 0.0, arrivals_s=list(due_s))
    position, now_s = 0, 0.0
    while now_s < outcome.seconds + GRACE_S:
        end_s = now_s + setup.interval_s
        first, position = position, bisect_left(due_s, end_s, position)
        _route(INPUT, [(at, at) for at in due_s[first:position]], behind[INPUT], owed)
        for stage in stages:
            name = stage.service.name
            gone = _route(name, stage.take(end_s), behind.get(name, ()), owed)
            outcome.latencies_s += [(at, at - due) for at, due in gone]
        active = sum(each.active for each in stages)
        outcome.replicas.append((now_s, active))
        if now_s < outcome.seconds:
            outcome.replica_s += active * min(setup.interval_s, outcome.seconds - now_s)
        now_s = end_s
        looks = [each.look(now_s) for each in stages]
        if scaler is not None:
            wanted = scaler(looks, 1e6 * setup.interval_s, float(position - first))
            changed = [each for each in stages if wanted[each.service.name] != each.active]
            for each in changed:
                each.scale(wanted[each.service.name], now_s)
            outcome.changes += bool(changed)
            if changed and setup.down_s:
                for each in stages:
                    each.stand_still(now_s + setup.down_s, setup.drops)
    outcome.dropped = sum(each.dropped for each in stages)
    return outcome


def _route(
    origin: str, records: list[Record], ways: Sequence[tuple[_Replicas, float]], owed: dict[tuple[str, str], float]
) -> list[Record]:
    """Send records on to the operations behind one, by their shares in turn; return those that end here."""
    if not ways:
        return records
    if len(ways) == 1 and ways[0][1] == 1.0:
        ways[0][0].inbox += records
        ways[0][0].received[origin] += len(records)
        return []
    ended = []
    for each in records:
        for stage, share in ways:
            owed[origin, stage.service.name] = owed.get((origin, stage.service.name), 0.0) + share
        stage = max((stage for stage, _ in ways), key=lambda stage: owed[origin, stage.service.name])
        if owed[origin, stage.service.name] >= 0.5:
            owed[origin, stage.service.name] -= 1.0
            stage.inbox.append(each)
            stage.received[origin] += 1
        else:
            ended.append(each)
    return ended
