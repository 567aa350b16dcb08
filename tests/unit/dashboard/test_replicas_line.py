"""What the live view says of replicas: who computes, how busy they are, and that a function waits."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.control.replicas import ReplicasView
from penstock.dashboard.view import _replicas


def view(**changes: Any) -> ReplicasView:
    given: dict[str, Any] = {
        "operations": ["lookup"],
        "degree": 2,
        "wanted": 2,
        "least": 1,
        "most": 8,
        "replicas": [0, 1],
    }
    given |= {"utilisation": {0: 0.97, 1: 0.5}, "record_us": 25_000.0, "cpu_us": 24_000.0, "service_eps": 78.0}
    return ReplicasView(**{**given, **changes})


def test_who_computes_and_what_a_record_costs() -> None:
    text = _replicas(view(activations=3)).plain
    assert (
        text == "lookup by 2 replicas   78/s   busy 97% 50%   25.0 ms a record, 24.0 ms of it computing   3 activations"
    )
    here = _replicas(view(degree=0, wanted=4, replicas=[], utilisation={})).plain
    assert here == "lookup by the workers themselves   4 wanted   0 activations"
    pinned = _replicas(view(pinned=True)).plain
    assert pinned.endswith("0 activations   settled by the user")


@pytest.mark.parametrize(
    ("record_us", "cpu_us", "waits"),
    [(25_000.0, 100.0, True), (25_000.0, 6_000.0, False), (500.0, 1.0, False), (0.0, 0.0, False)],
)
def test_a_function_that_waits_is_told_of_a_better_way(record_us: float, cpu_us: float, waits: bool) -> None:
    advice = view(record_us=record_us, cpu_us=cpu_us).advice
    assert ("map_async()" in advice) is waits
