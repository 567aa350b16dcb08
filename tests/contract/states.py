"""Snapshots of a keyed operator outside any unit, as tests take them: whole, or what has changed since the last one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.engine.state import StateSnapshot, restore_state
from penstock.operators import StatefulOperator

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StateSnapshot).decode


def snapshot(operator: StatefulOperator, full: bool) -> bytes:
    """Write the whole state, or what has changed."""
    state = operator.state
    return _encode(StateSnapshot(operator.header(), [state.whole() if full else state.flush()]))


def restore(operator: StatefulOperator, snapshots: Sequence[bytes]) -> None:
    """Give an operator the state of a whole snapshot and the changes after it."""
    restore_state(operator, [_decode(packed) for packed in snapshots])
