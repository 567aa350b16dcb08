"""Plants a bug into the real code and looks for a seed that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

import pytest

from penstock.testing.simulation import simulate
from penstock.testing.simulation.scenario import Scenario

RUNS_MAX = 300

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]
Matters = Callable[[Scenario], bool]


class Nursery:
    """The planted bugs of a file."""

    def __init__(self) -> None:
        self.mutations: list[tuple[Mutation, Matters]] = []

    def planted(self, mutation: Mutation) -> Mutation:
        """Plant a bug that any seed may come near."""
        self.mutations.append((mutation, lambda scenario: True))
        return mutation

    def planted_where(self, matters: Matters) -> Callable[[Mutation], Mutation]:
        """Plant a bug that few seeds come near: only those whose faults or pipelines do are run."""

        def plant(mutation: Mutation) -> Mutation:
            self.mutations.append((mutation, matters))
            return mutation

        return plant

    @property
    def parameters(self) -> pytest.MarkDecorator:
        """One test for each."""
        names = [mutation.__name__ for mutation, _ in self.mutations]
        return pytest.mark.parametrize(("mutation", "matters"), self.mutations, ids=names)


def find(mutation: Mutation, matters: Matters, seeds: Iterable[int], monkeypatch: Patch) -> None:
    """Fail unless one of the first seeds that matter finds the bug."""
    mutation(monkeypatch)
    for seed in islice((seed for seed in seeds if matters(Scenario.of(seed))), RUNS_MAX):
        try:
            simulate(seed)
        except Exception as found:
            print(f"SEED={seed}: {str(found).splitlines()[0]}")
            return
    pytest.fail(f"{RUNS_MAX} runs do not find it")
