"""A measurement in a process of its own: what it found, or why it found nothing."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock_bench.meter.apart import apart


def test_the_last_line_is_what_it_found() -> None:
    found = apart("penstock_bench.studies.generator_speed", "benchmarks/workloads/listing-4.1.json", kind=dict)
    assert {each["source"] for each in found["speeds"]} == {"yahoo", "listing-4.1"}


def test_what_it_failed_with_is_told() -> None:
    with pytest.raises(PenstockError, match=r"'penstock_bench\.nowhere 7' failed: .*No module named"):
        apart("penstock_bench.nowhere", "7", kind=dict)
