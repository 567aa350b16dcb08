"""When and how the state of keyed operations is written and read back; `operators/keyed/state.py` holds it."""

from penstock.engine.state.copier import Copier, StateSnapshot, restore_state

__all__ = ["Copier", "StateSnapshot", "restore_state"]
