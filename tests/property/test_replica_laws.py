"""PS-1 and its baselines on any input: bounded, monotone, calm under a constant load, settled soon after a step."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.control.laws.ds2 import ds2
from penstock.control.laws.forecast import Forecast
from penstock.control.laws.replicas import INPUT, OURS, PAPER, Operator, Policy, needs, replicas_for
from penstock.control.laws.threshold import Threshold

TD_US = 1_000_000
counts = st.floats(0, 1e6)
times_us = st.floats(0, 1e6)
policies = st.sampled_from([PAPER, OURS, Policy(reserve=0.3), Policy(delta=0.5)])


@st.composite
def graphs(draw: st.DrawFn) -> list[Operator]:
    """Any graph in which records only go forward, with splits and merges."""
    found: list[Operator] = []
    for place in range(draw(st.integers(1, 6))):
        origins = [INPUT, *(each.name for each in found)]
        received = {
            origin: draw(counts) for origin in draw(st.lists(st.sampled_from(origins), min_size=1, unique=True))
        }
        least = draw(st.integers(1, 4))
        found.append(
            Operator(
                name=str(place),
                received=received,
                processed=draw(counts),
                queue=draw(counts),
                execution_us=draw(times_us),
                replicas=draw(st.integers(1, 40)),
                least=least,
                most=least + draw(st.integers(0, 40)),
            )
        )
    return found


@given(graphs(), counts, policies)
def test_every_law_stays_within_bounds(operators: list[Operator], incoming: float, policy: Policy) -> None:
    found = {name: need.replicas for name, need in needs(operators, TD_US, incoming=incoming, policy=policy).items()}
    for answer in (found, ds2(operators, TD_US, incoming=incoming), Threshold().decide(operators, TD_US)):
        assert answer.keys() == {each.name for each in operators}
        assert all(each.least <= answer[each.name] <= each.most for each in operators)


@given(graphs(), counts, st.floats(1, 10), policies)
def test_more_load_never_needs_fewer(operators: list[Operator], incoming: float, times: float, policy: Policy) -> None:
    low = needs(operators, TD_US, incoming=incoming, expected=incoming, policy=policy)
    high = needs(operators, TD_US, incoming=incoming, expected=incoming * times, policy=policy)
    longer = needs(
        [replace(each, queue=each.queue * times) for each in operators], TD_US, incoming=incoming, policy=policy
    )
    for name, need in low.items():
        assert need.replicas <= high[name].replicas
        assert need.replicas <= longer[name].replicas


@given(st.floats(0, 100), st.integers(1, 60), policies)
def test_the_same_need_twice_changes_nothing(work: float, present: int, policy: Policy) -> None:
    once = replicas_for(work, present=present, least=1, most=50, policy=policy)
    assert replicas_for(work, present=once, least=1, most=50, policy=policy) == once


@given(st.floats(1, 40), st.lists(st.floats(-0.02, 0.02), min_size=40, max_size=40))
def test_a_constant_load_with_noise_does_not_swing(work: float, noise: list[float]) -> None:
    """Hysteresis is wider than the noise: replicas settle and stay, up to one that a peak has asked for."""
    present, changes = 1, 0
    for each in noise:
        wanted = replicas_for(work * (1 + each), present=present, least=1, most=50, policy=OURS)
        changes += wanted < present
        present = wanted
    assert changes == 0


@given(
    st.floats(10, 400),
    st.floats(10, 400),
    st.lists(st.floats(1_000, 50_000), min_size=1, max_size=4),
    st.sampled_from([PAPER, OURS]),
)
def test_a_step_is_worked_off_and_settles(low: float, high: float, times_us: list[float], policy: Policy) -> None:
    """A chain in made-up time, one interval at a time: what has queued at the step is gone soon, and nothing swings."""
    replicas, queues, seen = [1] * len(times_us), [0.0] * len(times_us), []
    for look in range(40):
        incoming = low if look < 15 else high
        operators, coming, origin = [], incoming, INPUT
        for place, execution_us in enumerate(times_us):
            room = replicas[place] * TD_US / execution_us
            done = min(coming + queues[place], room)
            queues[place] += coming - done
            name = str(place)
            operators.append(
                Operator(
                    name=name,
                    received={origin: coming},
                    processed=done,
                    queue=queues[place],
                    execution_us=execution_us,
                    replicas=replicas[place],
                    most=10_000,
                )
            )
            coming, origin = done, name
        replicas = [need.replicas for need in needs(operators, TD_US, incoming=incoming, policy=policy).values()]
        seen.append((tuple(replicas), sum(queues) < 1e-6))
    settles = 4 + 2 * len(times_us)
    for begin, end in ((0, 15), (15, 40)):
        calm = seen[begin + settles : end]
        assert all(empty for _, empty in calm)
        assert len({each for each, _ in calm}) <= 1


@given(st.lists(st.floats(0, 1e6), max_size=120), st.integers(1, 5))
def test_a_forecast_is_never_negative_and_forgets_nothing_finite(values: list[float], horizon: int) -> None:
    forecast = Forecast(horizon)
    for value in values:
        forecast.add(value)
        assert 0.0 <= forecast.ahead() < 1e9


@given(st.floats(0, 1e6), st.integers(1, 5), st.integers(1, 100))
def test_a_constant_load_is_expected_to_stay(value: float, horizon: int, looks: int) -> None:
    forecast = Forecast(horizon)
    for _ in range(looks):
        forecast.add(value)
    assert abs(forecast.ahead() - value) <= 1e-6 * max(1.0, value)
