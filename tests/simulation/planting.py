"""Plants a bug into the real code and looks for a seed that finds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import chain, islice
from pathlib import Path

import pytest

from penstock.testing.simulation import run
from penstock.testing.simulation.run import Outcome, Simulation
from penstock.testing.simulation.scenario import Scenario

RUNS_MAX = 1500
STEPS_MAX = 40_000
"""A run with a bug that goes on for longer does not end; one without it must take less than half of them."""
FINDERS: dict[str, int] = json.loads(Path(__file__).with_name("finders.json").read_text())
"""The seed that found each bug the last time, where a search for it takes long: it is tried first."""

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]
Change = Callable[[Scenario], Scenario | None]
"""What a bug needs to come to light, put into the scenario of a seed; None where that cannot be."""


class Nursery:
    """The planted bugs of a file."""

    def __init__(self) -> None:
        self.mutations: list[tuple[Mutation, Change]] = []

    def planted(self, mutation: Mutation) -> Mutation:
        """Plant a bug that any seed may come near."""
        self.mutations.append((mutation, lambda scenario: scenario))
        return mutation

    def planted_where(self, matters: Callable[[Scenario], bool]) -> Callable[[Mutation], Mutation]:
        """Plant a bug that few seeds come near: only those whose faults or pipelines do are run."""
        return self.planted_with(lambda scenario: scenario if matters(scenario) else None)

    def planted_with(self, change: Change) -> Callable[[Mutation], Mutation]:
        """Plant a bug that only certain faults bring to light: they take the place of a seed's own."""

        def plant(mutation: Mutation) -> Mutation:
            self.mutations.append((mutation, change))
            return mutation

        return plant

    @property
    def parameters(self) -> pytest.MarkDecorator:
        """One test for each."""
        names = [mutation.__name__ for mutation, _ in self.mutations]
        return pytest.mark.parametrize(("mutation", "change"), self.mutations, ids=names)


def find(
    mutation: Mutation,
    change: Change,
    seeds: Iterable[int],
    monkeypatch: Patch,
    seen: Callable[[Outcome], bool] = lambda outcome: True,
) -> None:
    """Fail unless one of the first seeds that can be used finds the bug, which is not there without it.

    A bug is found where a run fails, or where what is ``seen`` without it is not seen with it.
    """
    mutation(monkeypatch)
    first = FINDERS.get(mutation.__name__)
    seeds = seeds if first is None else chain([first], seeds)
    changed = (found for seed in seeds if (found := change(Scenario.of(seed))) is not None)
    for scenario in islice(changed, RUNS_MAX):
        monkeypatch.setattr(run, "STEPS_MAX", STEPS_MAX)
        try:
            if seen(Simulation(scenario).run()):
                continue
            print(f"SEED={scenario.seed}: something is not seen any more")
        except Exception as error:
            print(f"SEED={scenario.seed}: {str(error).splitlines()[0]}")
        monkeypatch.undo()
        sound = Simulation(scenario)
        if seen(sound.run()) and sound.world.steps < STEPS_MAX / 2:
            return
        mutation(monkeypatch)
    pytest.fail(f"{RUNS_MAX} runs do not find it")
