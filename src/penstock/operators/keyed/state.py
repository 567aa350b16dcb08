"""Keyed state by key group: what every operation with state keeps it in, and how it is written, read and dealt out.

An operation keeps its state in a `KeyedState`, whose *spaces* are dicts: one for an operation that holds one value for
each key, one for each window where there are windows. It reads and changes them as dicts, in place, and has one duty:
**whatever it adds, changes or removes it names in the space's** ``changed``. It writes no snapshot itself.

>>> state = KeyedState("visits", several=False)
>>> visits = state.open()
>>> visits["ann"] = [1]; visits.changed["ann"] = None      # new
>>> visits["ann"][0] += 1; visits.changed["ann"] = None    # changed
>>> written = [state.flush(100)]
>>> del visits["ann"]; visits.changed["ann"] = None        # removed
>>> again = KeyedState("visits", several=False)
>>> again.restore(written)
>>> dict(again.open())
{'ann': [2]}

What is written is a log of *pieces*. A piece says: these spaces are gone, these entries are removed, these entries have
these values now. Applied in order to an empty state, the pieces give the state; an entry that is written twice has the
later value. So a piece may be made at any time, and of any entries:

===========  ========================================  ==============================================================
piece        made of                                   why it is right
===========  ========================================  ==============================================================
`flush`      some of what has changed                  values are whole, so the last one written is the present one;
                                                       at a marker everything that is left is flushed
`refresh`    the next few key groups, changed or not   writes what is so anyway: nothing but the log's length depends
                                                       on it. Once every entry that was there when the walk began has
                                                       been written, whatever was written before that is not needed
`whole`      everything                                nothing before it is needed
===========  ========================================  ==============================================================

An entry that is made while a walk is under way has been flushed since the walk began. One that is removed then is
flushed as removed. A space that is gone takes its entries along, and one of the same name that follows it has all of
its entries in ``changed`` until they are flushed, after the word that the old one is gone. The engine decides when
(`engine/state/copier.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import islice
from typing import Any

import msgspec

from penstock.errors import OperationFailed, PenstockError
from penstock.operators.errors import describe_error, user_traceback
from penstock.operators.keys import key_group
from penstock.types import Record

Name = int | str
"""Of a space: a window's start, say."""
MAIN_SPACE: Name = 0

KeyOf = Callable[[Name, Any, Any], Any]
"""From space, id and value of an entry to the key whose group it belongs to."""
Load = Callable[[Name, Any, Any], Any]
"""From space, id and stored value of an entry to what is held in memory."""


class Piece(msgspec.Struct, array_like=True):
    """A part of the log of a state, on disk."""

    gone: list[Name]
    """Spaces that are no more; they come first."""
    removed: list[tuple[Name, list[Any]]]
    entries: list[tuple[Name, list[tuple[Any, Any]]]]


_DECIMAL = 1
"""Code of a decimal in an id: as text it would come back as one."""


def _read_extension(code: int, packed: memoryview) -> Any:
    assert code == _DECIMAL
    return Decimal(bytes(packed).decode())


decode_piece = msgspec.msgpack.Decoder(Piece, ext_hook=_read_extension).decode


def _exact(each: Any) -> Any:
    """An id that comes back as it is."""
    if type(each) is Decimal:
        return msgspec.msgpack.Ext(_DECIMAL, str(each).encode())
    return tuple(map(_exact, each)) if type(each) is tuple else each


class Space(dict[Any, Any]):
    """Entries by id: the key, mostly; values are plain, may be changed in place, and are never None.

    Attributes
    ----------
    changed : dict
        Ids that were added, changed or removed and not written since, with the value if it is at hand, or None. What
        is removed must have None.
    fresh : list or None
        Ids that were added since. An operation that changes entries often and says in the state's constructor that it
        notes them spares their key groups from being found again and again; None: found whenever one is written.
    groups : dict or None
        Ids by key group, of all that have been written, and perhaps of some that are removed; None while the whole
        state is small enough to be written at once, and nobody asks for its groups.
    """

    __slots__ = ("changed", "fresh", "groups")

    def __init__(self, *, notes_fresh: bool) -> None:
        super().__init__()
        self.changed: dict[Any, Any] = {}
        self.fresh: list[Any] | None = [] if notes_fresh else None
        self.groups: dict[int, dict[Any, None]] | None = None


class KeyedState:
    """The state of one instance of an operation.

    Parameters
    ----------
    operation : str
        Name of the operation, for errors.
    several : bool
        Whether ids are tuples: keys of several columns, or of none.
    key_of : callable, optional
        The key of an entry, where its id is not the key.
    load : callable, optional
        What a value is in memory, where that differs from plain values as msgpack has them.
    dump : callable, optional
        What is written of a value that is no plain one; raises TypeError for others.
    notes_fresh : bool
        Whether the operation names what it adds in the spaces' ``fresh`` too.
    numbered : bool
        Whether ids are numbers that the instance gives, in the order of arrival, whatever the space.

    Attributes
    ----------
    spaces : dict
        All spaces that are open, by name.
    """

    def __init__(
        self,
        operation: str,
        *,
        several: bool,
        key_of: KeyOf | None = None,
        load: Load | None = None,
        dump: Callable[[Any], Any] | None = None,
        notes_fresh: bool = False,
        numbered: bool = False,
    ) -> None:
        self.spaces: dict[Name, Space] = {}
        self._operation = operation
        self.several = several
        self.key_of = key_of
        self.load = load
        self._encode = msgspec.msgpack.Encoder(enc_hook=dump).encode
        self._notes_fresh = notes_fresh
        self.is_numbered = numbered
        self._gone: list[Name] = []
        self._left: dict[Name, dict[Any, None]] = {}
        """Entries of key groups that have gone elsewhere: the log has them, and is to say that they are removed."""
        self._walk: Iterator[tuple[Name, Space, int]] | None = None

    def open(self, name: Name = MAIN_SPACE) -> Space:
        """Return the space of a name; a new one if there is none."""
        space = self.spaces.get(name)
        if space is None:
            space = self.spaces[name] = Space(notes_fresh=self._notes_fresh)
        return space

    def drop(self, name: Name) -> None:
        """Forget a space, with all its entries at once."""
        del self.spaces[name]
        self._gone.append(name)

    def take_out(self, name: Name, limit: int) -> list[tuple[Any, Any]]:
        """Remove about ``limit`` entries of a space, by key groups, and return them; for states that note what is new.

        Freeing a million entries at once takes as long as to make something of them.
        """
        groups = self.groups_in(name)
        taken: list[tuple[Any, Any]] = []
        while groups and len(taken) < limit:
            taken += self.take_group(name, next(reversed(groups)))
        return taken

    def groups_in(self, name: Name) -> dict[int, dict[Any, None]]:
        """The ids of a space by key group, perhaps with some that are removed."""
        space = self.spaces[name]
        self._place(name, space, [])
        return self._groups(name, space)

    def group_of(self, name: Name, group: int) -> list[tuple[Any, Any]]:
        """The entries of one key group of a space."""
        space, ids = self.spaces[name], self.groups_in(name).get(group, {})
        return [(each, value) for each in ids if (value := space.get(each)) is not None]

    def take_group(self, name: Name, group: int) -> list[tuple[Any, Any]]:
        """Remove the entries of one key group of a space, and return them."""
        space, ids = self.spaces[name], self.groups_in(name).pop(group, {})
        taken = [(each, value) for each in ids if (value := space.pop(each, None)) is not None]
        space.changed.update(ids)
        return taken

    def __len__(self) -> int:
        return sum(map(len, self.spaces.values()))

    @property
    def changes(self) -> int:
        """How many entries have changed and are not written."""
        changed = sum(len(space.changed) for space in self.spaces.values())
        return changed + sum(map(len, self._left.values())) if self._left else changed

    # --- writing ------------------------------------------------------------------------------------------------------

    def flush(self, limit: int | None = None) -> bytes:
        """Write what has changed; about ``limit`` entries of it at most."""
        piece, left = Piece(self._gone, [], []), limit
        if self._left:
            left = self._flush_left(piece, limit)
        for name, space in self.spaces.items() if left is None or left > 0 else ():
            if not space.changed:
                continue
            named = self._named(space, left)
            entries = [(each, value) for each, value in named if value is not None]
            if entries:
                piece.entries.append((name, entries))
                self._place(name, space, entries)
            if len(entries) < len(named):
                piece.removed.append((name, [each for each, value in named if value is None]))
            if left is not None:
                left -= len(named)
                if left <= 0:
                    break
        packed = self._pack(piece)
        self._gone = []
        return packed

    def leave(self, name: Name, ids: Iterable[Any]) -> None:
        """Note that entries which the log has, and the space has not, belong to another instance."""
        self._left.setdefault(name, {}).update(dict.fromkeys(ids))

    def _flush_left(self, piece: Piece, limit: int | None) -> int | None:
        """Write that some entries have gone elsewhere; return how many others may be written."""
        for name in list(self._left):
            held = self._left[name]
            ids = list(islice(held, limit))
            for each in ids:
                del held[each]
            if not held:
                del self._left[name]
            piece.removed.append((name, ids))
            if limit is not None:
                limit -= len(ids)
                if limit <= 0:
                    break
        return limit

    def _named(self, space: Space, limit: int | None) -> list[tuple[Any, Any]]:
        """Take some of the entries that have changed: ids and values, None where one is removed."""
        changed, get = space.changed, space.get
        if limit is None or len(changed) <= limit:
            named = [(each, get(each) if value is None else value) for each, value in changed.items()]
            changed.clear()
            return named
        named = [(each, get(each) if value is None else value) for each, value in islice(changed.items(), limit)]
        for each, _ in named:
            del changed[each]
        return named

    def _place(self, name: Name, space: Space, entries: list[tuple[Any, Any]]) -> None:
        """Find the key groups of what is written; of what is new, if that is known."""
        fresh = space.fresh
        if space.groups is None:
            self._groups(name, space)
        else:
            if fresh is not None:
                entries = [(each, value) for each in fresh if (value := space.get(each)) is not None]
            groups, key_of = space.groups, self.key_of
            for each, value in entries:
                group = key_group(each if key_of is None else key_of(name, each, value))
                held = groups.get(group)
                if held is None:
                    groups[group] = {each: None}
                else:
                    held[each] = None
        if fresh is not None:
            fresh.clear()

    def refresh(self, limit: int) -> tuple[bytes, int, bool]:
        """Write the next key groups as they are, of about ``limit`` entries.

        Returns what was written, of how many entries, and whether that was the last of a walk through all that was
        there when it began. The next call begins another one.
        """
        walk = self._walk
        if walk is None:
            walk = self._walk = self._all_groups()
        piece = Piece([], [], [])
        count, ended = 0, True
        for name, space, group in walk:
            groups = self._groups(name, space)
            held = groups.get(group)
            if held is None:
                continue  # all of it has been taken out
            entries = [(each, value) for each in held if (value := space.get(each)) is not None]
            if len(entries) < len(held):
                groups[group] = {each: None for each, _ in entries}
            if entries:
                if piece.entries and piece.entries[-1][0] == name:
                    piece.entries[-1][1].extend(entries)
                else:
                    piece.entries.append((name, entries))
            count += len(entries)
            if count >= limit:
                ended = False
                break
        if ended:
            self._walk = None
        return self._pack(piece), count, ended

    def _all_groups(self) -> Iterator[tuple[Name, Space, int]]:
        """All groups of all spaces that are open now; the walk may pause while the state changes."""
        for name, space in list(self.spaces.items()):
            for group in list(self._groups(name, space)):
                if self.spaces.get(name) is not space:
                    break
                yield name, space, group

    def whole(self) -> bytes:
        """Write everything."""
        entries = [(name, list(space.items())) for name, space in self.spaces.items() if space]
        packed = self._pack(Piece([], [], entries))
        self._gone.clear()
        self._left.clear()
        for space in self.spaces.values():
            space.changed.clear()
            space.groups = None
            if space.fresh is not None:
                space.fresh.clear()
        self._walk = None
        return packed

    def _pack(self, piece: Piece) -> bytes:
        """Pack a piece; what a user's function keeps may be nothing that can be stored."""
        if any(self._holds_decimals(each for each, _ in entries) for _, entries in piece.entries) or any(
            self._holds_decimals(ids) for _, ids in piece.removed
        ):
            entries = [(name, [(_exact(each), value) for each, value in held]) for name, held in piece.entries]
            piece = Piece(piece.gone, [(name, list(map(_exact, ids))) for name, ids in piece.removed], entries)
        try:
            return self._encode(piece)
        except (TypeError, OverflowError) as error:
            raise PenstockError(
                f"its state cannot be stored: {error}.",
                operation=self._operation,
                hint="User-defined aggregates keep plain values: numbers, text, bytes, lists, dicts.",
            ) from error

    def _holds_decimals(self, ids: Iterable[Any]) -> bool:
        return Decimal in ({type(part) for each in ids for part in each} if self.several else set(map(type, ids)))

    def _groups(self, name: Name, space: Space) -> dict[int, dict[Any, None]]:
        """The ids of a space by key group."""
        if space.groups is None:
            groups: dict[int, dict[Any, None]] = {}
            key_of = self.key_of
            for each, value in space.items():
                group = key_group(each if key_of is None else key_of(name, each, value))
                groups.setdefault(group, {})[each] = None
            space.groups = groups
        return space.groups

    def place(self) -> None:
        """Find the key groups of all entries, which a large state does once, before it is at work."""
        for name, space in self.spaces.items():
            self._groups(name, space)

    # --- reading ------------------------------------------------------------------------------------------------------

    def restore(self, *logs: Iterable[bytes], owned: Container[int] | None = None) -> None:
        """Take what pieces give: those of one instance, or of several, of which no two have the same key.

        Of the key groups ``owned`` only, if given.
        """
        found = [self._read(pieces, owned) for pieces in logs]
        if self.is_numbered and len(found) > 1:
            found = _renumbered(found)
        for spaces in found:
            for name, held in spaces.items():
                if held:
                    self.open(name).update(held)

    def restore_without(self, groups: Container[int], pieces: Iterable[bytes]) -> None:
        """Take what pieces give, but for some key groups, which have gone elsewhere; the log will say so."""
        for name, held in self._read(pieces, None).items():
            left = self._in_groups(groups, name, held)
            if left:
                self.leave(name, left)
            for each in left:
                del held[each]
            if held:
                self.open(name).update(held)

    def restore_with(self, groups: Container[int], own: Iterable[bytes], lent: Iterable[bytes]) -> bool:
        """Take what pieces give, and some key groups of another's; say whether the entries have kept their ids.

        If they have, those that have come are noted as changed, so that the log gets them.
        """
        found = [self._read(own, None), self._read(lent, groups)]
        if self.is_numbered:
            found = _renumbered(found)
        for log, spaces in enumerate(found):
            for name, held in spaces.items():
                if held:
                    space = self.open(name)
                    space.update(held)
                    if log:
                        space.changed.update(dict.fromkeys(held))
        return not self.is_numbered

    def _in_groups(self, groups: Container[int], name: Name, held: dict[Any, Any]) -> list[Any]:
        """Those entries whose keys are of some groups."""
        key_of = self.key_of
        return [
            each
            for each, value in held.items()
            if key_group(each if key_of is None else key_of(name, each, value)) in groups
        ]

    def _read(self, pieces: Iterable[bytes], owned: Container[int] | None) -> dict[Name, dict[Any, Any]]:
        """The entries of one log, by space."""
        found: dict[Name, dict[Any, Any]] = {}
        several = self.several
        for packed in pieces:
            piece = decode_piece(packed)
            for name in piece.gone:
                found.pop(name, None)
            for name, ids in piece.removed:
                held = found.get(name, {})
                for each in ids:
                    held.pop(tuple(each) if several else each, None)
            for name, entries in piece.entries:
                held = found.setdefault(name, {})
                held.update(((tuple(each), value) for each, value in entries) if several else entries)
        key_of, load = self.key_of, self.load
        for name, held in found.items():
            if load is not None:
                found[name] = held = {each: load(name, each, value) for each, value in held.items()}
            if owned is not None:
                found[name] = {
                    each: value
                    for each, value in held.items()
                    if key_group(each if key_of is None else key_of(name, each, value)) in owned
                }
        return found


def _renumbered(found: list[dict[Name, dict[Any, Any]]]) -> list[dict[Name, dict[Any, Any]]]:
    """Give the entries of several instances numbers of one order, which keeps that of each of them."""
    known = {(each, log) for log, spaces in enumerate(found) for held in spaces.values() for each in held}
    numbers = {each: number for number, each in enumerate(sorted(known))}
    return [
        {name: {numbers[each, log]: value for each, value in held.items()} for name, held in spaces.items()}
        for log, spaces in enumerate(found)
    ]


def read_record(record_type: type[Record], values: list[Any]) -> Record:
    """A record of a state that was read back: decimals and structs are texts and lists there."""
    return msgspec.convert(values, record_type, builtin_types=(bytes,))


@contextmanager
def making_results(operation: str, what: str) -> Iterator[None]:
    """Name the operation, and ``what`` it was making, in an error of a user's aggregate."""
    try:
        yield
    except PenstockError as error:
        raise error.at(operation) from None
    except Exception as error:
        raise OperationFailed(
            operation=operation,
            cause=describe_error(error),
            record=what,
            user_traceback=user_traceback(error),
        ) from error
