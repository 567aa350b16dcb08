"""What the output must be, worked out from the input alone; knows nothing of the engine but its output."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from penstock.operators import DEAD_LETTER_SCHEMA
from penstock.testing.simulation.world import Violation

SCHEMA = "partition bigint, seq bigint, key string, key_seq bigint, at timestamp"
WINDOW_US = 100_000

Row = tuple[int, int, str, int, int]
"""Partition, number in the partition, key, number of the key in the partition, event time in microseconds."""
Output = Mapping[str, Sequence[tuple[int, Sequence[object]]]]
"""By sink: instance and record (as a tuple), in the order in which they became visible."""


class Shape(Enum):
    """The pipelines that are simulated."""

    STATELESS = "filter"
    KEYED = "shuffle, then filter"
    RUNNING = "running count by key"
    WINDOW = "windowed count by key"
    LATE = "shuffle, then windowed count by key; what is late goes to another sink"
    SPLIT = "split, two branches, merge"
    FANOUT = "one stream into a sink and into a running count"
    DEEP = "windowed count by key, then a running sum of the counts"
    WINDOWING = "a process function that counts by window, with timers"
    BUFFERING = "a process function that holds records back by the clock"
    FOLLOWING = "a process function that takes records and timers in the order of time"
    CALLED = "calls of a service, in order"
    CALLED_BY_KEY = "calls of a service, in order by key"


FUNCTIONS = (Shape.WINDOWING, Shape.BUFFERING, Shape.FOLLOWING, Shape.CALLED, Shape.CALLED_BY_KEY)
"""Pipelines with functions of the user's that keep state or wait for others."""


def check(shape: Shape, rows: Sequence[Row], output: Output, *, may_idle: bool = False) -> None:
    """Raise Violation unless the output is exactly that of an undisturbed run.

    Where partitions may be taken for idle, what is late depends on timing, and only the rest must fit it.
    """
    match shape:
        case Shape.STATELESS | Shape.KEYED | Shape.SPLIT | Shape.BUFFERING | Shape.CALLED | Shape.CALLED_BY_KEY:
            _check_records(rows, output["out"])
        case Shape.FOLLOWING:
            from penstock.testing.simulation.functions import followed  # which is made of the shapes' words

            _same(followed(rows), Counter(tuple(record) for _, record in output["out"]), "what is told")
        case Shape.RUNNING:
            _check_running(_totals(rows), output["out"])
        case Shape.WINDOW | Shape.WINDOWING:
            _check_windows(_by_window(rows), [record for _, record in output["out"]])
        case Shape.LATE:
            _check_late(rows, output, may_idle=may_idle)
        case Shape.FANOUT:
            _check_records(rows, output["out"])
            _check_running(_totals(rows), output["counts"])
        case Shape.DEEP:
            _check_running(_totals(rows), output["out"])


def _check_records(rows: Sequence[Row], output: Sequence[tuple[int, Sequence[object]]]) -> None:
    _same(Counter(rows), Counter(tuple(record) for _, record in output), "records")
    last: dict[object, object] = {}
    home: dict[object, int] = {}
    for instance, (partition, _, key, key_seq, _) in output:
        place = partition, key
        if home.setdefault(place, instance) != instance:
            raise Violation(f"{place} comes out of instance {home[place]} and of instance {instance}")
        if place in last and not int(str(last[place])) < int(str(key_seq)):
            raise Violation(f"reordered: {key_seq} of {place} comes after {last[place]}")
        last[place] = key_seq


def _same(expected: Counter[Any], found: Counter[tuple[object, ...]], what: str) -> None:
    wanted: Counter[tuple[object, ...]] = Counter(dict(expected))
    phantom = [each for each in found if each not in wanted]
    lost = wanted - found
    doubled = found - wanted
    if phantom or lost or doubled:
        few = f"phantom {phantom[:3]}, lost {list(lost)[:3]}, doubled {list(doubled)[:3]}"
        raise Violation(f"{what}: {len(phantom)} phantom, {lost.total()} lost, {doubled.total()} doubled: {few}")


def _totals(rows: Iterable[Row]) -> dict[object, tuple[int, int]]:
    """Count and sum of ``seq`` by key."""
    totals: dict[object, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for _, seq, key, _, _ in rows:
        totals[key] = totals[key][0] + 1, totals[key][1] + seq
    return dict(totals)


def _by_window(rows: Iterable[Row]) -> Counter[tuple[object, ...]]:
    totals: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for _, seq, key, _, at_us in rows:
        group = key, at_us - at_us % WINDOW_US
        totals[group] = totals[group][0] + 1, totals[group][1] + seq
    return Counter((key, start, start + WINDOW_US, *both) for (key, start), both in totals.items())


def _check_running(totals: Mapping[object, tuple[int, int]], output: Sequence[tuple[int, Sequence[object]]]) -> None:
    """The counts of a key only grow, and end at the total."""
    last: dict[object, tuple[int, int]] = {}
    for _, (key, count, total) in output:
        now = int(str(count)), int(str(total))
        if key in last and now[0] <= last[key][0]:
            raise Violation(f"the count of {key} goes from {last[key][0]} to {now[0]}")
        last[key] = now
    if last != totals:
        wrong = {
            key: (last.get(key), totals.get(key)) for key in {**last, **totals} if last.get(key) != totals.get(key)
        }
        raise Violation(f"running totals, found and expected: {wrong}")


def _check_windows(expected: Counter[tuple[object, ...]], output: Iterable[Sequence[object]]) -> None:
    _same(expected, Counter(tuple(record) for record in output), "windows")


def _check_late(rows: Sequence[Row], output: Output, *, may_idle: bool) -> None:
    """Every record is in its window's result or among the late ones: those behind the watermark of their partition."""
    late = [tuple(record) for _, record in output["late"]]
    if not may_idle:
        _same(_behind(rows), Counter(late), "late records")
    on_time = Counter(rows)
    for row in late:
        if not on_time[row]:  # type: ignore[index]
            raise Violation(f"{row} is late twice, or was never there")
        on_time[row] -= 1  # type: ignore[index]
    _check_windows(_by_window(on_time.elements()), [record for _, record in output["out"]])


def _behind(rows: Iterable[Row]) -> Counter[Row]:
    """Records whose window had closed by what their own partition had shown before them."""
    newest: dict[int, int] = {}
    behind: Counter[Row] = Counter()
    for row in rows:
        partition, *_, at_us = row
        if partition in newest and newest[partition] >= at_us - at_us % WINDOW_US + WINDOW_US:
            behind[row] += 1
        newest[partition] = max(at_us, newest.get(partition, at_us))
    return behind


def check_dead_letters(poison: Iterable[tuple[int, int]], output: Sequence[tuple[int, Sequence[object]]]) -> None:
    """Every record that kills its process is among the dead letters once, and nothing else is."""
    found: Counter[tuple[object, ...]] = Counter()
    text = DEAD_LETTER_SCHEMA.names.index("record")
    for _, letter in output:
        record = json.loads(str(letter[text]))
        found[record["partition"], record["seq"]] += 1
    _same(Counter(dict.fromkeys(poison, 1)), found, "dead letters")
