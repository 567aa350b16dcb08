"""The judge of ``benchmarks/kafka_kills.py`` finds every fault that it counts."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def kills() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "kafka_kills.py"
    spec = spec_from_file_location("kafka_kills", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["kafka_kills"] = module_from_spec(spec)  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("counts", "faults"),
    [
        ([1, 2, 3], {}),
        ([1, 3], {"lost": 1}),
        ([], {"lost": 3}),
        ([1, 2, 2, 3], {"doubled": 1}),
        ([1, 2, 3, 1, 2, 3], {"doubled": 3}),
        ([1, 3, 2], {"reordered": 1}),
        ([1, 2, 3, 4], {"wrong": 1}),
        ([2, 3, 3, 5], {"lost": 1, "doubled": 1, "wrong": 1}),
    ],
)
def test_what_is_not_exact_is_counted(kills: Any, counts: list[int], faults: dict[str, int]) -> None:
    written = 3 * kills.KEYS
    found = {f"k{key}": [1, 2, 3] for key in range(kills.KEYS)}
    verdict = kills.Verdict.of({**found, "k7": counts}, written)
    assert verdict == kills.Verdict(results=written - 3 + len(counts), **faults)


def test_a_key_that_was_never_written_is_wrong(kills: Any) -> None:
    found = {f"k{key}": [1] for key in range(kills.KEYS)}
    assert kills.Verdict.of({**found, f"k{kills.KEYS}": [1]}, kills.KEYS).wrong == 1
