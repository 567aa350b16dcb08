"""The running count of a key on Bytewax."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]


class Count(op.StatefulBatchLogic):  # type: ignore[misc]
    """The running count of one key; a row for every event."""

    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[Any]) -> tuple[Iterable[int], bool]:
        first = self._count + 1
        self._count += len(values)
        return range(first, self._count + 1), False

    def snapshot(self) -> int:
        return self._count
