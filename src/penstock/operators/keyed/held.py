"""Records that a join holds until their partners have come: numbered in the order of arrival, kept by key group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.operators.base import StatefulOperator
from penstock.operators.keyed.state import KeyedState, Name, read_record
from penstock.types import Record

LOW_US = -(1 << 63)
HIGH_US = 1 << 63


class HoldingOperator(StatefulOperator):
    """A half of a join behind the shuffle: what all of them keep, and how it is written and read back.

    Attributes
    ----------
    watermark_us : int
        Records before this time are late.
    next_number : int
        Number of the next record that is held.
    """

    watermark_us: int = LOW_US
    next_number: int = 0
    _key: Callable[[Record], Any]

    def _open(self, operation: str) -> KeyedState:
        """Make the state; ids are the records' numbers."""
        return KeyedState(operation, several=False, key_of=self._key_of, load=self._load, numbered=True)

    def _key_of(self, name: Name, number: int, row: Any) -> Any:
        del name, number
        return self._key(row)

    def _load(self, name: Name, number: int, values: Any) -> Any:
        del name, number
        return read_record(self._schema.record_type, values)

    def header(self) -> Any:
        return self.watermark_us, self.next_number

    def restored(self, headers: Sequence[Any]) -> None:
        self.watermark_us = max(watermark_us for watermark_us, _ in headers)
        # Records of several instances have been numbered anew, from 0 on.
        self.next_number = sum(number for _, number in headers)
