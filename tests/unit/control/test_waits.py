"""What a job waits for, in words."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.control.presence import Absence
from penstock.control.waits import Waits

S = 1_000_000


def lines(**changes: Any) -> list[str]:
    calm: dict[str, Any] = {
        "workers": 4,
        "missing": (),
        "absent": [],
        "restoring": (),
        "epoch": 7,
        "epoch_us": S,
        "unreported": (),
        "cores": 8,
        "cores_most": 8,
    }
    return Waits(**(calm | changes)).lines()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"unreported": {1, 2}}, []),
        ({"missing": {2, 3}}, ["workers 2, 3 of 4 to start"]),
        ({"missing": {3}, "cores": None}, ["worker 3 of 4 to start"]),
        ({"absent": [Absence(1, 8 * S, None)]}, ["worker 1, silent for 8 s"]),
        (
            {"absent": [Absence(1, 45 * S, 15 * S)], "restoring": {0, 1}, "unreported": {1}, "epoch_us": 46 * S},
            ["worker 1, silent for 45 s; another process was ordered 15 s ago", "worker 0 to restore state"],
        ),
        ({"unreported": {1, 2}, "epoch_us": 9 * S}, ["workers 1, 2 to report epoch 7, for 9 s"]),
        ({"cores": 3, "cores_most": 3}, ["cores: 4 are needed, the cluster offers 3"]),
        ({"cores": 3}, ["cores: 4 are needed, the cluster offers 3, 5 were lost"]),
        ({"cores": 6}, ["cores: 2 of 8 were lost; the workers have theirs, slots may not"]),
    ],
)
def test_every_wait_is_told(changes: dict[str, Any], told: list[str]) -> None:
    assert lines(**changes) == told
