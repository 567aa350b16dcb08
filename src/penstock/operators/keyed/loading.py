"""A keyed state that is read back piece by piece, beside other work; `engine/state/moving.py` does so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.operators.base import StatefulOperator
from penstock.operators.keyed.state import Name, Space, decode_piece
from penstock.operators.keys import key_group

Tell = Callable[[Name, Any, Any, Any], None]


@dataclass(frozen=True, slots=True)
class Part:
    """Which key groups of a log are taken.

    Attributes
    ----------
    groups : frozenset of int
        These only, or all but these.
    notes_left : bool
        Whether the state is to note the entries of others as removed: its own log has them.
    notes_come : bool
        Whether the state is to note what is taken as changed: its own log lacks it.
    """

    groups: frozenset[int]
    only: bool
    notes_left: bool = False
    notes_come: bool = False

    def takes(self, group: int) -> bool:
        """Whether a key group is taken."""
        return (group in self.groups) is self.only


class Loading:
    """Brings the pieces of a log into the state of an operation, one at a time and in order.

    After the last one the state is the one that `KeyedState.restore` makes of all of them, and the key groups of its
    entries are known too. An operation that makes something of its state, such as a heap, hears of every entry
    (`StatefulOperator.hears_loading`), so that nothing is left to be made of it at the end.

    Parameters
    ----------
    part : Part, optional
        Which key groups are taken. Several logs may be brought into one state, each with other groups.
    """

    def __init__(self, operator: StatefulOperator, part: Part | None = None) -> None:
        self._operator = operator
        self._part = part
        self._left: dict[Name, dict[Any, None]] = {}
        """Entries of the log that were not taken, where that is noted."""

    def begin(self, header: Any) -> None:
        """Pieces come that were written before this header."""
        self._operator.prepare_next(header)

    def apply(self, packed: bytes) -> None:
        """Take the next piece."""
        state, piece = self._operator.state, decode_piece(packed)
        tell = self._operator.on_loaded if self._operator.hears_loading else None
        for name in piece.gone:
            self._left.pop(name, None)
            if (space := state.spaces.get(name)) is not None:
                self._drop(name, space, tell)
        for name, ids in piece.removed:
            space, left = state.spaces.get(name), self._left.get(name, {})
            for stored in ids:
                each = tuple(stored) if state.several else stored
                left.pop(each, None)
                before = space.get(each) if space is not None else None
                if space is None or before is None or not self._is_mine(name, each, before):
                    continue
                del space[each]
                if tell is not None:
                    tell(name, each, None, before)
        for name, entries in piece.entries:
            self._take(name, entries, tell)

    def _is_mine(self, name: Name, each: Any, value: Any) -> bool:
        """Whether this log has brought an entry: what it says of one that another log has brought is history."""
        part, key_of = self._part, self._operator.state.key_of
        return part is None or part.takes(key_group(each if key_of is None else key_of(name, each, value)))

    def _drop(self, name: Name, space: Space, tell: Tell | None) -> None:
        """A space of this log is gone; what other logs have brought into it stays."""
        part, state = self._part, self._operator.state
        if part is None:
            gone = state.spaces.pop(name)
        else:
            groups = space.groups or {}
            ids = [each for group, held in groups.items() if part.takes(group) for each in held]
            gone = Space(notes_fresh=False)
            gone.update((each, space.pop(each)) for each in ids if each in space)
            if not space:
                del state.spaces[name]
        if tell is not None:
            for each, value in gone.items():
                tell(name, each, None, value)

    def _take(self, name: Name, entries: Sequence[tuple[Any, Any]], tell: Tell | None) -> None:
        state, part = self._operator.state, self._part
        several, key_of, load = state.several, state.key_of, state.load
        known, space = name in state.spaces, state.open(name)
        groups = space.groups = {} if space.groups is None else space.groups
        for stored, value in entries:
            each = tuple(stored) if several else stored
            loaded, before = value if load is None else load(name, each, value), space.get(each)
            if before is None:
                group = key_group(each if key_of is None else key_of(name, each, loaded))
                if part is not None and not part.takes(group):
                    if part.notes_left:
                        self._left.setdefault(name, {})[each] = None
                    continue
                groups.setdefault(group, {})[each] = None
            space[each] = loaded
            if part is not None and part.notes_come:
                space.changed[each] = None
            if tell is not None:
                tell(name, each, loaded, before)
        if not known and not space:
            del state.spaces[name]  # none of it was taken

    def end(self, headers: Sequence[Any]) -> None:
        """The last piece has come: the operation goes on with what was written with these headers."""
        if self._operator.hears_loading:
            self._operator.caught_up(headers)
        else:
            self._operator.restored(headers)
        self.note_left()

    def note_left(self) -> None:
        """Have the state note what was not taken, if it is to."""
        for name, ids in self._left.items():
            self._operator.state.leave(name, ids)
        self._left = {}


def parts(groups: Collection[int]) -> tuple[Part, Part, Part]:
    """How the old instance of a shift takes its own log, the new one its own, and the new one the old one's."""
    held = frozenset(groups)
    leaves = Part(held, only=False, notes_left=True)
    return leaves, Part(held, only=False), Part(held, only=True, notes_come=True)
