"""The rows of the study of replicas that are simulated: what the paper prints, loads, graphs, laws (PS, section V)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.control.laws.ds2 import ds2
from penstock.control.laws.forecast import Forecast
from penstock.control.laws.replicas import INPUT, OURS, Predictive
from penstock.control.laws.threshold import Threshold
from penstock.control.replicating import HOLD_LOOKS
from penstock_bench.studies.queueing import Grouping, Outcome, Scaler, Service, Setup, due_times, simulate
from penstock_bench.studies.traces import Trace

MODEL, ENGINE = "model", "engine"
OVER = 8
"""Replicas of each operation that carry the highest peak: the paper's over-provisioned configuration."""
PEAK_WORK = 7.77
"""Replicas that the highest peak keeps busy. The paper prints no service times; its table VIII says that one replica
carries 0.3319 of the records, and the mean of its load is 0.3876 of the highest rate: 1 / (0.3319 x 0.3876) = 7.77."""
MEAN_EPS = 80.0
"""Loads are thinned out to about so many records a second on average, and service times lengthened by as much: the
Twitter load then has four times 38 ms, which is the latency that the paper measured with r = 8."""
MEAN_SHORT_EPS = 20.0
STRETCH_S = 3_720
"""Seconds of a load: as long as the recorded Twitter load is."""
TD_S, T_OUT_S, Q_SIZE = 30.0, 30.0, 100_000
RESTART_S = 10.0
"""How long a topology that is started again does nothing."""
SAVED_MIN, P99_MAX = 0.56, 2.0
COURSE_MAX = 500
"""Points of a drawn run, about."""
LAWS = "laws"
OURS_NAME, FIXED = "Penstock", "r = 8"
Place = tuple[str, str, str, str]
"""Table, row, load, and whether it is the model or the engine."""
Graph = Sequence[Mapping[str, float]]
"""Of each operation: which part of what each predecessor has finished comes to it."""


class Said(msgspec.Struct):
    """What the paper prints in a row."""

    saved: float
    degradation: float
    processed: float
    latency_ms: float


class Scene(msgspec.Struct):
    """One run.

    ``degradation`` is |in - out|/in, on average over 30 s; ``over_s`` counts the seconds in which some record took
    longer than the target, twice the p99 of the over-provisioned run.
    """

    table: str
    name: str
    load: str
    where: str
    saved: float
    degradation: float
    processed: float
    dropped: int
    mean_ms: float
    p99_ms: float
    replica_s: float
    over_s: int
    changes: int
    paper: Said | None = None
    course: list[list[float]] = msgspec.field(default_factory=list)
    """Replicas over time, of the runs that are drawn: seconds and number."""


@dataclass(frozen=True)
class Run:
    """One row of a table, to be simulated."""

    name: str
    setup: Setup
    scaler: Callable[[], Scaler | None] = lambda: None
    paper: Said | None = None
    chain: bool = False
    """The operations are one chain, and a replica runs all of it, as Penstock's do."""


def _follows(law: Predictive) -> Scaler:
    return lambda operators, td_us, incoming: {
        name: need.replicas for name, need in law.decide(operators, td_us, incoming).items()
    }


def _paper() -> Scaler:
    return _follows(Predictive())


def ours() -> Scaler:
    """The law as the control loop has it."""
    return _follows(Predictive(OURS, Forecast(), HOLD_LOOKS))


def _ds2() -> Scaler:
    return lambda operators, td_us, incoming: ds2(operators, td_us, incoming=incoming)


def _threshold() -> Scaler:
    law = Threshold()
    return lambda operators, td_us, _: law.decide(operators, td_us)


PSPS = Setup(interval_s=TD_S, timeout_s=T_OUT_S, bound=Q_SIZE, grouping=Grouping.BALANCED, most=2 * OVER)
"""The paper's chosen parameters. At t = 900 s it has more than r_over: its pools are larger than that."""
STORM = Setup(grouping=Grouping.SHUFFLE)
FAST = Setup(interval_s=1.0, most=OVER)
_CHOSEN = Said(0.5617, 0.1831, 0.9987, 2098.91)


def _psps(name: str, said: Said, **changes: object) -> Run:
    return Run(name, replace(PSPS, **changes), _paper, said)  # type: ignore[arg-type]


def _fixed(count: int, said: Said) -> Run:
    return Run(f"r = {count}", replace(STORM, replicas=count), paper=said)


def paper_tables() -> dict[str, list[Run]]:
    """The rows of tables IV to XII that use the Twitter load, and how each is made."""
    return {
        "IV": [
            _psps("td = 30 s", _CHOSEN),
            _psps("td = 60 s", Said(0.5390, 0.4332, 0.9979, 5271.01), interval_s=60.0),
            _psps("td = 120 s", Said(0.5219, 0.9221, 0.9976, 17068.33), interval_s=120.0),
            _psps("td = 180 s", Said(0.5563, 0.8028, 0.9992, 22364.86), interval_s=180.0),
        ],
        "V": [
            _psps("t_out = 1 s", Said(0.6164, 0.1000, 0.9030, 369.35), timeout_s=1.0),
            _psps("t_out = 5 s", Said(0.5875, 0.1038, 0.9303, 946.69), timeout_s=5.0),
            _psps("t_out = 10 s", Said(0.5633, 0.1056, 0.9529, 1298.45), timeout_s=10.0),
            _psps("t_out = 30 s", _CHOSEN),
        ],
        "VI": [
            _psps("q_size = 100", Said(0.6719, 0.1919, 0.6835, 29.91), bound=100),
            _psps("q_size = 1,000", Said(0.6656, 0.1375, 0.6922, 311.93), bound=1_000),
            _psps("q_size = 10,000", Said(0.6602, 0.1687, 0.7249, 1394.56), bound=10_000),
            _psps("q_size = 100,000", _CHOSEN),
        ],
        "VII": [
            _psps("shuffle", Said(0.5390, 0.4332, 0.9979, 5271.01), grouping=Grouping.SHUFFLE),
            _psps("load balancing", _CHOSEN),
            Run("one line (Penstock's)", replace(PSPS, grouping=Grouping.LINE), _paper),
        ],
        "VIII": [
            _psps("PSPS", _CHOSEN),
            _fixed(1, Said(0.8750, 0.5153, 0.3319, 196962.95)),
            _fixed(4, Said(0.5, 0.8559, 0.9874, 269.75)),
            _fixed(8, Said(0.0, 0.0, 1.0, 153.51)),
        ],
        "X": [
            _psps("PSPS", _CHOSEN),
            _psps("DABS (restarts)", Said(0.3962, 0.2849, 0.8283, 1391.28), down_s=RESTART_S, drops=True),
        ],
    }


class Other(NamedTuple):
    load: str
    over: int
    """Replicas of each operation of the over-provisioned configuration."""
    rows: list[Run]
    graph: Graph | None = None


def other_tables() -> dict[str, Other]:
    """Tables IX, XI and XII."""
    wide = [_psps("PSPS", Said(0.745, 0.4, 0.9791, 2501.46)), _fixed(1, Said(0.875, 0.6706, 0.2822, 48379.95))]
    graph = [_psps("PSPS", Said(0.745, 0.0911, 0.9970, 219.13), most=10), _fixed(5, Said(0.0, 0.0, 1.0, 31.99))]
    narrow = [
        _fixed(1, Said(0.6666, 0.4521, 0.9759, 476.12)),
        _psps("PSPS", Said(0.0002, 0.5754, 0.9884, 555.95), most=3),
    ]
    return {
        "IX": Other("twitter-raw", 8, wide),
        "XI": Other("twitter", 5, graph, COMPLEX),
        "XII": Other("dns", 3, narrow),
    }


def laws() -> list[Run]:
    """Laws beside each other on one load, each at an interval of a second; the paper's and DABS also at theirs."""
    return [
        Run(FIXED, replace(FAST, replicas=OVER)),
        Run(OURS_NAME, replace(FAST, most=4 * OVER), ours, chain=True),
        Run("Penstock's law, a pool for each operation", FAST, ours),
        Run("PS-1 as written, td = 1 s", FAST, _paper),
        Run("PS-1 as written, td = 30 s, in the paper's queues", replace(PSPS, timeout_s=None, bound=None), _paper),
        Run("DS2, td = 1 s", FAST, _ds2),
        Run("DS2, td = 30 s, 10 s to restart", replace(FAST, interval_s=TD_S, down_s=RESTART_S), _ds2),
        Run("threshold 0.5 to 0.8", FAST, _threshold),
    ]


# --- loads and graphs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """Records of a recorded load, thinned out, and the graph that they go through."""

    name: str
    due_s: list[float]
    services: list[Service]
    over: int
    thin: float
    """One record stands for so many: bounds of queues shrink with it."""

    @property
    def chain(self) -> list[Service]:
        """The operations of a chain as one, which a replica runs as a whole."""
        return [Service(name="chain", execution_s=sum(each.execution_s for each in self.services))]


def load_of(
    trace: Trace, seconds: int, over: int = OVER, graph: Graph | None = None, mean_eps: float = MEAN_EPS
) -> Load:
    """Thin a load out, and choose service times so that its peak keeps the over-provisioned replicas busy."""
    rates = busiest(trace.rates_eps, seconds)
    thin = max(1.0, sum(rates) / len(rates) / mean_eps)
    thinned = [rate / thin for rate in rates]
    execution_s = PEAK_WORK / OVER * over / max(thinned)
    links = graph or [{INPUT if place == 0 else str(place - 1): 1.0} for place in range(4)]
    services = [Service(name=str(place), execution_s=execution_s, shares=link) for place, link in enumerate(links)]
    return Load(trace.name, list(due_times(thinned)), services, over, thin)


def busiest(rates_eps: Sequence[float], seconds: int) -> list[float]:
    """The part of a load that lasts so long and has most records."""
    rows = min(len(rates_eps), max(1, seconds))
    first = int(np.convolve(rates_eps, np.ones(rows), mode="valid").argmax())
    return list(rates_eps[first : first + rows])


COMPLEX: Graph = ({INPUT: 1}, {"0": 1}, {"1": 0.6}, {"1": 0.4}, {"2": 0.5}, {"3": 1}, {"4": 1, "5": 1}, {"6": 1})
"""Eight operations for r_over = 40, with a split, a filter and a merge; the paper shows its graph only as a picture."""


def scene_of(
    outcome: Outcome, place: Place, over: int, target_ms: float = 0.0, paper: Said | None = None, drawn: bool = False
) -> Scene:
    """Put a run into a row; ``over`` are the replicas of the over-provisioned configuration."""
    course = []
    if drawn:
        step = max(1, len(outcome.replicas) // COURSE_MAX)
        course = [[round(at, 2), float(count)] for at, count in outcome.replicas[::step] if at <= outcome.seconds]
    return Scene(
        *place,
        saved=round(outcome.saved(over), 4),
        degradation=round(outcome.degradation, 4),
        processed=round(outcome.processed, 4),
        dropped=outcome.dropped,
        mean_ms=round(outcome.mean_ms, 2),
        p99_ms=round(outcome.latency_ms(0.99), 2),
        replica_s=round(outcome.replica_s, 1),
        over_s=outcome.over_s(target_ms) if target_ms else 0,
        changes=outcome.changes,
        paper=paper,
        course=course,
    )


def run_of(run: Run, load: Load, table: str, target_ms: float = 0.0, drawn: bool = False) -> Scene:
    bound = None if run.setup.bound is None else max(1, round(run.setup.bound / load.thin))
    services = load.chain if run.chain else load.services
    outcome = simulate(services, load.due_s, replace(run.setup, bound=bound), run.scaler())
    place = table, run.name, load.name, MODEL
    return scene_of(outcome, place, load.over * len(load.services), target_ms, run.paper, drawn)
