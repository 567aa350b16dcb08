"""What is wrong with a workload file: every problem with the path of its field; `load` and `layout` collect them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import PenstockError, nearest

PROBLEMS_SHOWN_MAX = 20
_GIVEN_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that cannot stay as it is."""

    path: str  # the field, such as ``transformations.t1.params.p`` or ``sources[0].key_dist``
    what: str  # what is wrong, and what is allowed instead

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else self.what


class WorkloadRefused(PenstockError):
    """A workload file cannot be run."""

    code = "WORKLOAD_FILE"

    def __init__(self, *, path: str, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        count = len(self.problems)
        if count == 1 and not self.problems[0].path:
            super().__init__(f"'{path}': {self.problems[0]}")
            return
        shown = "".join(f"\n  {problem}" for problem in self.problems[:PROBLEMS_SHOWN_MAX])
        more = f"\n  and {count - PROBLEMS_SHOWN_MAX} more" if count > PROBLEMS_SHOWN_MAX else ""
        super().__init__(f"'{path}' has {count} problem{'s' if count != 1 else ''}:{shown}{more}")


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _GIVEN_CHARS_MAX else text[: _GIVEN_CHARS_MAX - 1] + "…"


def not_allowed(path: str, given: object, allowed: str) -> Problem:
    return Problem(path, f"{shown(given)} is not allowed. Allowed: {allowed}.")


def unknown_word(path: str, what: str, word: object, allowed: Iterable[str]) -> Problem:
    """A word that is not one of the allowed ones, with the nearest that is."""
    words = list(allowed)
    close = nearest(word, words) if isinstance(word, str) else ""
    return Problem(path, f"there is no {what} {shown(word)}. Allowed: {', '.join(words) or '(none)'}.{close}")
