"""The parameters of one distribution as a file gives them: which belong to it, and their values; for `sources`."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock_bench.files.distributions import Kind
from penstock_bench.files.problems import Problem, not_allowed


class Given:
    """Parameters that are given for a distribution; what is wrong with them is added to the problems."""

    def __init__(self, kind: Kind, params: msgspec.Struct, path: str, problems: list[Problem]) -> None:
        self.kind = kind
        self._path = path
        self._problems = problems
        self._known = params.__struct_fields__
        self._values = {name: value for name in self._known if (value := getattr(params, name)) is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def get(self, name: str, default: Any) -> Any:
        """Return a parameter that may be left out."""
        return self._values.get(name, default)

    def are(self, *needs: str, may: tuple[str, ...] = ()) -> bool:
        """Check that all of ``needs`` are there, and nothing else but what ``may`` be."""
        allowed = ", ".join([*needs, *may]) or "(none)"
        before = len(self._problems)
        for name in self._values:
            if name not in (*needs, *may):
                self.refuse(name, f"it is not a parameter of {self.kind.value}. Allowed: {allowed}.")
        for name in needs:
            if name not in self._values:
                self.refuse(name, f"missing: {self.kind.value} needs it. Allowed: {allowed}.")
        return len(self._problems) == before

    def range(self, most: int) -> tuple[int, int] | None:
        """Return ``lower`` and ``upper`` if they are a range up to ``most``."""
        low, high = self["lower"], self["upper"]
        if low <= high <= most:
            return low, high
        self._problems.append(not_allowed(f"{self._path}.upper", high, f"from lower={low} to {most}"))
        return None

    def refuse(self, name: str, what: str) -> None:
        """Note what is wrong with a parameter."""
        self._problems.append(Problem(f"{self._path}.{name}" if name else self._path, what))
