"""Which key groups have most of an edge's records; of every `SAMPLE_RECORDS` one is looked at, which costs little.

Only what is dealt out as records is seen here; columns, which slots deal out, are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.operators.keys import key_group, key_source
from penstock.protocol.pulses import GroupHeat
from penstock.types import Record

SAMPLE_RECORDS = 64
SAMPLES_MAX = 2_048
"""When so many have been counted, all counts are halved: what was long ago counts less."""
TOLD = 4
"""Groups that are told of an edge."""
KEY_CHARACTERS = 40


class Heat:
    """Samples of one edge of one instance."""

    __slots__ = ("_counts", "_key", "_keys", "samples")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.samples = 0
        self._counts: dict[int, int] = {}
        self._keys: dict[int, Any] = {}
        """A key of each group, the last one seen."""
        scope: dict[str, Any] = {}
        exec(compile(f"def key(r): return {key_source(names)}", "<penstock key>", "exec"), scope)
        self._key = scope["key"]

    def add(self, record: Record) -> None:
        """Count a record."""
        key = self._key(record)
        group = key_group(key)
        self._counts[group] = self._counts.get(group, 0) + 1
        self._keys[group] = key
        self.samples += 1
        if self.samples >= SAMPLES_MAX:
            self._counts = {each: count // 2 for each, count in self._counts.items() if count > 1}
            self._keys = {each: self._keys[each] for each in self._counts}
            self.samples = sum(self._counts.values())

    def hottest(self) -> list[GroupHeat]:
        """The groups with most of the samples."""
        first = sorted(self._counts, key=self._counts.__getitem__, reverse=True)[:TOLD]
        return [
            GroupHeat(group=each, samples=self._counts[each], key=repr(self._keys[each])[:KEY_CHARACTERS])
            for each in first
        ]


def together(heats: Iterable[GroupHeat]) -> list[GroupHeat]:
    """The hottest groups of several instances."""
    found: dict[int, GroupHeat] = {}
    for each in heats:
        samples = each.samples + (found[each.group].samples if each.group in found else 0)
        found[each.group] = GroupHeat(group=each.group, samples=samples, key=each.key)
    return sorted(found.values(), key=lambda each: -each.samples)[:TOLD]


def shares(told: Mapping[int, tuple[int, list[GroupHeat]]]) -> dict[int, tuple[float, str]]:
    """By group: its share of all samples of one edge, told by each worker with how many samples it took, and a key."""
    samples = sum(each for each, _ in told.values())
    return {
        each.group: (each.samples / samples, each.key)
        for each in together(heat for _, heats in told.values() for heat in heats)
        if samples
    }
