"""A keyed state that is read back piece by piece, beside other work; `engine/state/moving.py` does so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.operators.base import StatefulOperator
from penstock.operators.keyed.state import KeyedState, Name, decode_piece
from penstock.operators.keys import key_group


class Loading:
    """Brings the pieces of a log into the state of an operation, one at a time and in order.

    After the last one the state is the one that `KeyedState.restore` makes of all of them, and the key groups of its
    entries are known too. An operation that makes something of its state, such as a heap, hears of every entry
    (`StatefulOperator.hears_loading`), so that nothing is left to be made of it at the end.
    """

    def __init__(self, operator: StatefulOperator) -> None:
        self._operator = operator

    def begin(self, header: Any) -> None:
        """Pieces come that were written before this header."""
        self._operator.prepare_next(header)

    def apply(self, packed: bytes) -> None:
        """Take the next piece."""
        state, piece = self._operator.state, decode_piece(packed)
        tell = self._operator.on_loaded if self._operator.hears_loading else None
        for name in piece.gone:
            held = state.spaces.pop(name, None)
            if held is not None and tell is not None:
                for each, value in held.items():
                    tell(name, each, None, value)
        for name, ids in piece.removed:
            if (space := state.spaces.get(name)) is not None:
                for stored in ids:
                    each = tuple(stored) if state.several else stored
                    before = space.pop(each, None)
                    if before is not None and tell is not None:
                        tell(name, each, None, before)
        for name, entries in piece.entries:
            self._take(state, name, entries, tell)

    @staticmethod
    def _take(
        state: KeyedState,
        name: Name,
        entries: Sequence[tuple[Any, Any]],
        tell: Callable[[Name, Any, Any, Any], None] | None,
    ) -> None:
        several, key_of, load = state.several, state.key_of, state.load
        space = state.open(name)
        groups = space.groups = {} if space.groups is None else space.groups
        for stored, value in entries:
            each = tuple(stored) if several else stored
            loaded, before = value if load is None else load(name, each, value), space.get(each)
            if before is None:
                group = key_group(each if key_of is None else key_of(name, each, loaded))
                groups.setdefault(group, {})[each] = None
            space[each] = loaded
            if tell is not None:
                tell(name, each, loaded, before)

    def end(self, header: Any) -> None:
        """The last piece has come, written before this header."""
        if self._operator.hears_loading:
            self._operator.caught_up(header)
        else:
            self._operator.restored([header])
