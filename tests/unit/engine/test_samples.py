"""Samples of what comes to a unit: enough, and not too heavy."""

from __future__ import annotations

from penstock.engine.samples import TAP_BYTES, TAP_RECORDS, Tap
from penstock.types import Schema

ROW = Schema.parse("text string").record_type


def test_a_tap_keeps_no_more_than_is_wanted() -> None:
    tap = Tap(TAP_RECORDS)
    for _ in range(4):
        tap.add([ROW("x")] * 200)
    assert (len(tap.rows), tap.wanted) == (TAP_RECORDS, TAP_RECORDS)


def test_a_tap_keeps_fewer_of_heavy_records() -> None:
    tap = Tap(TAP_RECORDS)
    for _ in range(100):
        tap.add([ROW("x" * 100_000)])
    assert len(tap.rows) == tap.wanted == TAP_BYTES // 100_007
    tap = Tap(TAP_RECORDS)
    tap.add([ROW("x" * 2 * TAP_BYTES)])
    tap.add([ROW("x")])
    assert len(tap.rows) == 1, "one there is always"
