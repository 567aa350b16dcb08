"""The keys of one instance of a process function: an object with the states of each, its timers, when it was last seen.

What a snapshot holds of it, and what becomes of that, is all in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from penstock.errors import PenstockError
from penstock.operators.keyed.process.declared import Layout
from penstock.operators.keyed.state import KeyedState, Space

CHECKED_MAX = 64
"""Keys whose values are checked against their declaration, of those that are written between two markers."""


class Saved(NamedTuple):
    """A key as it was."""

    key: Any
    values: bytes | None
    timers: set[int]
    clock_timers: set[int]
    seen_us: int | None


class Spaces(Enum):
    """What is kept for each key, apart; every space holds something else of the same keys."""

    OBJECTS = 0
    TIMERS = 1
    CLOCK_TIMERS = 2
    SEEN = 3
    WAITING = 4


_encode = msgspec.msgpack.Encoder().encode
_decode_stored = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode


class Timers:
    """Moments that keys wait for; each fires once, in the order of time."""

    def __init__(self, held: Space) -> None:
        self.held = held
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
        self.held.changed[key] = None
        self._number += 1
        heappush(self.heap, (at_us, self._number, key))

    def cancel(self, key: Any, at_us: int) -> None:
        """Wait no longer."""
        held = self.held.get(key)
        if held is not None:
            held.discard(at_us)
            self.held.changed[key] = None
            if not held:
                del self.held[key]

    def cancel_all(self, key: Any) -> None:
        """Wait for nothing."""
        if self.held.pop(key, None) is not None:
            self.held.changed[key] = None

    def put(self, key: Any, times: Iterable[int]) -> None:
        """Have a key wait for these moments and no others."""
        self.cancel_all(key)
        for at_us in sorted(times):
            self.set(key, at_us)

    def loaded(self, key: Any, times: Iterable[int] | None, before: Iterable[int] | None) -> None:
        """The moments of a key have come; those that it does not wait for any more are skipped when they are due."""
        if times is None:
            return
        self.held[key] = now = {*times}
        for at_us in now.difference(before or ()):
            self._number += 1
            heappush(self.heap, (at_us, self._number, key))

    def restored(self) -> None:
        """The moments have been read back: put them in order."""
        for key, times in self.held.items():
            self.held[key] = set(times)
        entries = [(at_us, key) for key, times in self.held.items() for at_us in times]
        self.heap = [(at_us, i, key) for i, (at_us, key) in enumerate(entries)]
        self._number = len(entries)
        heapify(self.heap)

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
        self.state = KeyedState(operation, several=several, dump=self._dump)
        self.objects = self.state.open(Spaces.OBJECTS.value)
        self.timers = Timers(self.state.open(Spaces.TIMERS.value))
        self.clock_timers = Timers(self.state.open(Spaces.CLOCK_TIMERS.value))
        self.seen = self.state.open(Spaces.SEEN.value)
        self.waiting = self.state.open(Spaces.WAITING.value)
        self.layout = layout
        self.layouts: list[list[str]] = [list(layout.names)]
        """The names of the states under which values have been written, in this job and those that it goes on from."""
        self._layout = 0
        self._kind = kind
        self._operation = operation
        self._own = [(name, each) for name, each in layout.states.items() if not each.is_shared]
        self._values = _getter(layout.names)
        self._decode = layout.decoder(list(layout.names))
        self._ages: list[tuple[int, int, Any]] = []
        self._aging: set[Any] = set()
        self._decoders: list[tuple[list[str], Any]] = []
        self._number = 0
        self._unchecked = CHECKED_MAX
        self.journal: dict[Any, Saved] | None = None
        """Keys as they were, of all that were changed since; None: nothing will have to be undone."""

    def make(self, key: Any) -> Any:
        """Make a key's object, with defaults."""
        made: Any = object.__new__(self._kind)
        self.objects[key] = made
        for name, each in self._own:
            setattr(made, name, each.fresh())
        return made

    def become(self, kind: type) -> bool:
        """Have another class, with the same states, see to the keys from now on; say whether that could be done."""
        try:
            for held in self.objects.values():
                object.__setattr__(held, "__class__", kind)
        except TypeError:  # classes of another make, such as one with slots
            for held in self.objects.values():
                object.__setattr__(held, "__class__", self._kind)
            return False
        self._kind = kind
        return True

    def take_converted(self, other: Table, convert: Callable[[Any, dict[str, Any]], Mapping[str, Any]]) -> None:
        """Take the keys of another table, with the states that a function makes of theirs; timers stay as they are."""
        for key, held in other.objects.items():
            made = convert(key, dict(zip(other.layout.names, other._values(held), strict=True)))
            self._fill(key, list(made), tuple(made.values()))
        for mine, theirs in ((self.timers, other.timers), (self.clock_timers, other.clock_timers)):
            for key, times in theirs.held.items():
                mine.put(key, times)
        self.waiting.update(other.waiting)
        for key, seen_us in other.seen.items():
            if self.layout.ttls_us and key in self.objects:
                self.touch(key, self.objects[key], seen_us)

    def forget(self, key: Any) -> None:
        """Forget a key with its timers."""
        for space in (self.objects, self.seen):
            if space.pop(key, None) is not None:
                space.changed[key] = None
        self.timers.cancel_all(key)
        self.clock_timers.cancel_all(key)

    # --- undoing ------------------------------------------------------------------------------------------------------

    def save(self, key: Any) -> Saved:
        """A key as it is, so that what is about to be done can be undone."""
        held = self.objects.get(key)
        values = None if held is None else _encode(self._values(held))
        timers, clocks = self.timers.held.get(key, ()), self.clock_timers.held.get(key, ())
        return Saved(key, values, set(timers), set(clocks), self.seen.get(key))

    def note(self, key: Any) -> None:
        """Take a key down as it is before it is changed for the first time, where all of that may have to be undone."""
        if self.journal is not None and key not in self.journal:
            self.journal[key] = self.save(key)

    def undo(self) -> None:
        """Undo what was done to all keys since the journal was begun."""
        for saved in (self.journal or {}).values():
            self.put_back(saved)
        self.journal = None

    def put_back(self, saved: Saved) -> None:
        """Undo what was done to a key since."""
        key = saved.key
        if saved.values is None:
            self.objects.pop(key, None)
        else:
            self._fill(key, self.layout.names, self._decode(saved.values))
        self.objects.changed[key] = None
        for timers, times in ((self.timers, saved.timers), (self.clock_timers, saved.clock_timers)):
            if timers.held.get(key, set()) != times:
                timers.put(key, times)
        if saved.seen_us is not None:
            self.seen[key] = saved.seen_us
        else:
            self.seen.pop(key, None)
        self.seen.changed[key] = None

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
            self.seen.changed[key] = None
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
            self.objects.changed[key] = self.seen.changed[key] = None
            later = [each for each in ttls_us if each >= elapsed_us]
            if later:
                self._age(key, seen_us, later[0])
                continue
            self._aging.discard(key)
            if self.layout.forgets_all:
                del self.objects[key], self.seen[key]

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """The input has ended: nothing is kept."""
        for held in islice(self.objects.values(), CHECKED_MAX):
            self._check(held)
        for space in self.state.spaces.values():
            space.changed.update(dict.fromkeys(space))
            space.clear()
        self._ages.clear()
        self._aging.clear()

    def header(self) -> list[list[str]]:
        """What is stored beside the keys: how to read their values."""
        self._unchecked = CHECKED_MAX
        return self.layouts

    def _dump(self, held: Any) -> bytes:
        """A key's values as they are stored, with the number of the layout that they have."""
        if type(held) is not self._kind:
            raise TypeError(f"{type(held).__name__} is no plain value")
        if self._unchecked:
            self._unchecked -= 1
            self._check(held)
        return _encode((self._layout, self._values(held)))

    def _check(self, held: Any) -> None:
        """Find what is kept and not declared, or is not of its type, long before it is missed after a crash."""
        for name in vars(held).keys() - self.layout.states.keys():
            raise PenstockError(
                f"it sets self.{name}, which is no declared state.",
                operation=self._operation,
                hint=f"Declare {name} = ps.state.value(…) in the class, or set it in __init__ or open().",
            )
        try:
            self._decode(_encode(self._values(held)))
        except msgspec.ValidationError as error:
            index = int(str(error).partition("`$[")[2].partition("]")[0] or 0)
            name = self.layout.names[index]
            raise PenstockError(
                f"self.{name} is {getattr(held, name)!r:.100}, which is not {self.layout.texts()[name]}: {error}.",
                operation=self._operation,
                hint="Values must be of the type that the state is declared with.",
            ) from None

    def restored(self, headers: Sequence[list[list[str]]]) -> None:
        """The spaces have been read back: make objects of what was stored, and what follows from that."""
        self.prepare(headers)
        for key, packed in self.objects.items():
            self._unpack(key, packed)
        self.timers.restored()
        self.clock_timers.restored()
        if self.layout.ttls_us:
            for key, seen_us in self.seen.items():
                self._aging.add(key)
                self._age(key, seen_us, self.layout.ttls_us[0])

    def prepare(self, headers: Sequence[list[list[str]]]) -> None:
        """Values are read back that were stored with these headers."""
        (*_, self.layouts) = sorted((list(each) for each in headers), key=len)
        own = list(self.layout.names)
        if own not in self.layouts:
            self.layouts.append(own)
        self._layout = self.layouts.index(own)
        self._decoders = [(names, self.layout.decoder(names)) for names in self.layouts]

    def _unpack(self, key: Any, packed: bytes) -> None:
        number, values = _decode_stored(packed)
        names, decode = self._decoders[number]
        self._fill(key, names, decode(values))

    def loaded(self, name: Any, key: Any, value: Any, before: Any) -> None:
        """An entry of a space has come in the place of another one, None where there is none; not of what waits."""
        if name == Spaces.OBJECTS.value and value is not None:
            self._unpack(key, value)
        elif name == Spaces.TIMERS.value:
            self.timers.loaded(key, value, before)
        elif name == Spaces.CLOCK_TIMERS.value:
            self.clock_timers.loaded(key, value, before)
        elif name == Spaces.SEEN.value and value is not None and self.layout.ttls_us and key not in self._aging:
            self._aging.add(key)
            self._age(key, value, self.layout.ttls_us[0])


def _getter(names: tuple[str, ...]) -> Any:
    if not names:
        return lambda _: ()
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda held: (get(held),)
    return attrgetter(*names)
