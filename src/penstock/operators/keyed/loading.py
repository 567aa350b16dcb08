"""A keyed state that is read back piece by piece, beside other work; `engine/state/moving.py` does so."""

from __future__ import annotations

from penstock.operators.keyed.state import KeyedState, decode_piece
from penstock.operators.keys import key_group


class Loading:
    """Brings the pieces of a log into a state, one at a time and in order.

    After the last one the state is the one that `KeyedState.restore` makes of all of them, and the key groups of its
    entries are known too.
    """

    def __init__(self, state: KeyedState) -> None:
        self._state = state

    def apply(self, packed: bytes) -> None:
        """Take the next piece."""
        state, piece = self._state, decode_piece(packed)
        several, key_of, load = state.several, state.key_of, state.load
        for name in piece.gone:
            state.spaces.pop(name, None)
        for name, ids in piece.removed:
            if (held := state.spaces.get(name)) is not None:
                for each in ids:
                    held.pop(tuple(each) if several else each, None)
        for name, entries in piece.entries:
            space = state.open(name)
            groups = space.groups = {} if space.groups is None else space.groups
            for stored, value in entries:
                each = tuple(stored) if several else stored
                loaded = value if load is None else load(name, each, value)
                if each not in space:
                    group = key_group(each if key_of is None else key_of(name, each, loaded))
                    groups.setdefault(group, {})[each] = None
                space[each] = loaded
