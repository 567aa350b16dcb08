"""The keys of one instance of a process function: an object with the states of each, its timers, when it was last seen.

What a snapshot holds of it, and what becomes of that, is all in this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.operators.keyed.process.declared import Layout
from penstock.operators.keyed.state import pack_state

CHECKED_MAX = 64
"""Keys whose values are checked against their declaration at every snapshot."""
LOW_US = -(1 << 63)


class KeyState(msgspec.Struct, array_like=True):
    """One key on disk; a key without values and timers is gone."""

    key: Any
    values: Any
    timers: list[int]
    clock_timers: list[int]
    seen_us: int


class TableState(msgspec.Struct, array_like=True):
    """The state on disk: of all keys, or of those that have changed. What was forgotten by time follows from it."""

    names: list[str]
    """Of the states, in the order of each key's values."""
    watermark_us: int
    late_records: int
    emptied: bool
    """Whether the state before is gone as a whole: the input had ended."""
    keys: Sequence[KeyState]
    waiting: list[Any] = []
    """Records that wait for their turn: all, or those that have come since."""


class _StoredKey(KeyState, array_like=True):
    values: msgspec.Raw


class _StoredTable(TableState, array_like=True):
    keys: Sequence[_StoredKey]


_decode = msgspec.msgpack.Decoder(_StoredTable).decode
_encode = msgspec.msgpack.Encoder().encode
_NIL = _encode(None)


class Timers:
    """Moments that keys wait for; each fires once, in the order of time."""

    def __init__(self) -> None:
        self.held: dict[Any, set[int]] = {}
        self.heap: list[tuple[int, int, Any]] = []
        self._number = 0

    def set(self, key: Any, at_us: int) -> None:
        """Have a key wait for a moment; once, however often it asks for that."""
        held = self.held.get(key)
        if held is None:
            held = self.held[key] = set()
        elif at_us in held:
            return
        held.add(at_us)
        self._number += 1
        heappush(self.heap, (at_us, self._number, key))

    def cancel(self, key: Any, at_us: int) -> None:
        """Wait no longer."""
        held = self.held.get(key)
        if held is not None:
            held.discard(at_us)
            if not held:
                del self.held[key]

    def put(self, key: Any, times: Iterable[int]) -> None:
        """Have a key wait for these moments and no others."""
        self.held.pop(key, None)
        for at_us in sorted(times):
            self.set(key, at_us)

    def next_us(self) -> int | None:
        """The first moment that a key waits for."""
        heap = self.heap
        while heap and heap[0][0] not in self.held.get(heap[0][2], ()):
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, until_us: int) -> Iterator[tuple[int, Any]]:
        """Take the moments up to one, first those that come first; what is set meanwhile has its place among them."""
        while (at_us := self.next_us()) is not None and at_us <= until_us:
            _, _, key = heappop(self.heap)
            self.cancel(key, at_us)
            yield at_us, key


class Table:
    """What one instance keeps.

    Parameters
    ----------
    kind : type
        Class of the keys' objects; default values that cannot be changed in place are its attributes.
    """

    def __init__(self, kind: type, layout: Layout, operation: str, *, several: bool) -> None:
        self.objects: dict[Any, Any] = {}
        self.changed: dict[Any, None] = {}
        self.timers = Timers()
        self.clock_timers = Timers()
        self.seen: dict[Any, int] = {}
        self.layout = layout
        self._kind = kind
        self._operation = operation
        self._several = several
        self._own = [(name, each) for name, each in layout.states.items() if not each.is_shared]
        self._values = _getter(layout.names)
        self._ages: list[tuple[int, int, Any]] = []
        self._aging: set[Any] = set()
        self._number = 0
        self._emptied = False

    def make(self, key: Any) -> Any:
        """Make a key's object, with defaults."""
        made: Any = object.__new__(self._kind)
        self.objects[key] = made
        for name, each in self._own:
            setattr(made, name, each.fresh())
        return made

    def forget(self, key: Any) -> None:
        """Forget a key with its timers."""
        self.objects.pop(key, None)
        self.seen.pop(key, None)
        self.timers.held.pop(key, None)
        self.clock_timers.held.pop(key, None)
        self.changed[key] = None

    # --- undoing ------------------------------------------------------------------------------------------------------

    def save(self, key: Any) -> KeyState:
        """A key as it is, so that what is about to be done can be undone."""
        held = self.objects.get(key)
        values = None if held is None else _encode(self._values(held))
        timers, clocks = self.timers.held.get(key, ()), self.clock_timers.held.get(key, ())
        return KeyState(key, values, list(timers), list(clocks), self.seen.get(key, LOW_US))

    def put_back(self, saved: KeyState) -> None:
        """Undo what was done to a key since."""
        key = saved.key
        if saved.values is None:
            self.objects.pop(key, None)
        else:
            self._fill(key, self.layout.names, self.layout.decoder(list(self.layout.names))(saved.values))
        self.timers.put(key, saved.timers)
        self.clock_timers.put(key, saved.clock_timers)
        if saved.seen_us != LOW_US:
            self.seen[key] = saved.seen_us
        else:
            self.seen.pop(key, None)

    def _fill(self, key: Any, names: Sequence[str], values: tuple[Any, ...]) -> None:
        made = self.make(key)
        for name, each in zip(names, values, strict=False):
            if name in self.layout.states:
                setattr(made, name, each)

    # --- time to live -------------------------------------------------------------------------------------------------

    def touch(self, key: Any, held: Any, now_us: int) -> None:
        """A record or timer of a key comes: what has outlived its time is as at the beginning."""
        seen_us = self.seen.get(key)
        if seen_us is not None and now_us - seen_us > self.layout.ttls_us[0]:
            self._expire(held, now_us - seen_us)
        if seen_us is None or now_us > seen_us:
            self.seen[key] = now_us
        if key not in self._aging:
            self._aging.add(key)
            self._age(key, now_us, self.layout.ttls_us[0])

    def _age(self, key: Any, seen_us: int, ttl_us: int) -> None:
        self._number += 1
        heappush(self._ages, (seen_us + ttl_us, self._number, key))

    def _expire(self, held: Any, elapsed_us: int) -> None:
        for name, each in self.layout.expired(elapsed_us):
            setattr(held, name, each.fresh())

    def next_age_us(self) -> int | None:
        """From when on `sweep` may find something."""
        return self._ages[0][0] + 1 if self._ages else None

    def sweep(self, now_us: int) -> None:
        """Forget what has outlived its time."""
        ages, ttls_us = self._ages, self.layout.ttls_us
        while ages and ages[0][0] < now_us:
            _, _, key = heappop(ages)
            seen_us, held = self.seen.get(key), self.objects.get(key)
            if seen_us is None or held is None:
                self._aging.discard(key)
                continue
            elapsed_us = now_us - seen_us
            self._expire(held, elapsed_us)
            later = [each for each in ttls_us if each >= elapsed_us]
            if later:
                self._age(key, seen_us, later[0])
                continue
            self._aging.discard(key)
            if self.layout.forgets_all:
                # Not written down: whoever restores it sees by its age that it is gone.
                del self.objects[key], self.seen[key]

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """The input has ended: nothing is kept."""
        self._check(self.objects)
        self._empty()
        self._emptied = True

    def _empty(self) -> None:
        for held in (self.objects, self.changed, self.seen, self.timers.held, self.clock_timers.held):
            held.clear()
        self._ages.clear()
        self._aging.clear()

    def snapshot(self, full: bool, watermark_us: int, late_records: int, waiting: list[Any]) -> bytes:
        """Pack all keys, or those that have changed since the last snapshot."""
        objects, values = self.objects, self._values
        keys: dict[Any, None] = self.changed
        if full:
            held = (*objects, *self.timers.held, *self.clock_timers.held)
            keys = dict.fromkeys(held)
        self._check(keys)
        rows = []
        for key in keys:
            found = objects.get(key)
            rows.append(
                KeyState(
                    key,
                    None if found is None else values(found),
                    sorted(self.timers.held.get(key, ())),
                    sorted(self.clock_timers.held.get(key, ())),
                    self.seen.get(key, LOW_US),
                )
            )
        emptied = self._emptied and not full
        state = TableState(list(self.layout.names), watermark_us, late_records, emptied, rows, waiting)
        packed = pack_state(state, self._operation)
        self.changed.clear()
        self._emptied = False
        return packed

    def _check(self, keys: Iterable[Any]) -> None:
        """Find what is kept and not declared, or is not of its type, long before it is missed after a crash."""
        decode = self.layout.decoder(list(self.layout.names))
        for held in filter(None, map(self.objects.get, islice(keys, CHECKED_MAX))):
            for name in vars(held).keys() - self.layout.states.keys():
                raise PenstockError(
                    f"it sets self.{name}, which is no declared state.",
                    operation=self._operation,
                    hint=f"Declare {name} = ps.state.value(…) in the class, or set it in __init__ or open().",
                )
            try:
                decode(_encode(self._values(held)))
            except msgspec.ValidationError as error:
                index = int(str(error).partition("`$[")[2].partition("]")[0] or 0)
                name = self.layout.names[index]
                raise PenstockError(
                    f"self.{name} is {getattr(held, name)!r:.100}, which is not {self.layout.texts()[name]}: {error}.",
                    operation=self._operation,
                    hint="Values must be of the type that the state is declared with.",
                ) from None
            except (TypeError, OverflowError):
                return  # whoever packs the state says so

    def restore(self, snapshots: Sequence[bytes]) -> tuple[int, int, list[Any]]:
        """Take the state of a whole snapshot and the changes that follow it.

        Returns the watermark, the number of late records, and the records that waited, or have since had their turn.
        """
        watermark_us, late_records = LOW_US, 0
        waiting: list[Any] = []
        for packed in snapshots:
            state = _decode(packed)
            if state.emptied:
                self._empty()
                waiting = []
            decode = self.layout.decoder(state.names)
            for each in state.keys:
                self._take(each, state.names, decode)
            watermark_us, late_records = state.watermark_us, state.late_records
            waiting += state.waiting
        for timers in (self.timers, self.clock_timers):
            timers.heap = [entry for entry in timers.heap if entry[0] in timers.held.get(entry[2], ())]
            heapify(timers.heap)
        if self.layout.ttls_us:
            for key, seen_us in self.seen.items():
                self._aging.add(key)
                self._age(key, seen_us, self.layout.ttls_us[0])
        self.changed.clear()
        return watermark_us, late_records, waiting

    def _take(self, each: _StoredKey, names: list[str], decode: Any) -> None:
        key = tuple(each.key) if self._several else each.key
        if bytes(each.values) == _NIL:
            self.objects.pop(key, None)
        else:
            self._fill(key, names, decode(each.values))
        self.timers.put(key, each.timers)
        self.clock_timers.put(key, each.clock_timers)
        if each.seen_us != LOW_US:
            self.seen[key] = each.seen_us
        else:
            self.seen.pop(key, None)


def _getter(names: tuple[str, ...]) -> Any:
    if not names:
        return lambda _: ()
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda held: (get(held),)
    return attrgetter(*names)
