"""What has come so far of a micro-batch that Spark transforms; `queries.asking` keeps one for each request. Pure.

A result is whole when the pieces are there of the attempts that count. The answer names them, or, where it is known how
many tasks bring the result, one whole attempt of each task counts: then nobody waits for Spark to see its job end.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.protocol.queries import Answer, Brought, Piece


class Gathered:
    """Pieces of one request, by the task attempt that has brought them."""

    def __init__(self) -> None:
        self.answered = False
        self._pieces: dict[tuple[int, int], bytes] = {}
        self._brought: dict[int, dict[int, int]] = {}
        """By task, and by attempt of it that is through: its pieces."""
        self._outputs = 0
        self._named: dict[int, int] = {}

    def take(self, message: Piece | Brought | Answer, payload: Sequence[bytes] = ()) -> None:
        """Take a piece, or a word about them.

        Raises
        ------
        RuntimeError
            With the cause, if the query has failed.
        """
        match message:
            case Piece(task=task, number=number):
                self._pieces[task, number] = payload[0]
            case Brought(task=task, part=part, pieces=pieces, outputs=outputs):
                self._outputs = outputs
                self._brought.setdefault(part, {})[task] = pieces
            case Answer(error=error, pieces=named, outputs=outputs):
                if error:
                    raise RuntimeError(error)
                self.answered, self._named, self._outputs = True, named, outputs

    def whole(self) -> list[bytes] | None:
        """The pieces of the result, in order; None while some are missing."""
        if self._outputs:
            found = [self._first_whole(self._brought.get(part, {})) for part in range(self._outputs)]
            attempts = [each for each in found if each is not None]
            if len(attempts) < len(found):
                return None
        else:
            attempts = sorted(self._named.items())
            if not self.answered or not all(map(self._has, attempts)):
                return None
        return [self._pieces[task, number] for task, count in attempts for number in range(count)]

    def _first_whole(self, attempts: dict[int, int]) -> tuple[int, int] | None:
        return next(filter(self._has, attempts.items()), None)

    def _has(self, attempt: tuple[int, int]) -> bool:
        task, count = attempt
        return all((task, number) in self._pieces for number in range(count))
