"""Plants a bug into the real code and looks for a seed that finds it.

``RENEW_FINDERS=1 pytest tests/simulation`` searches anew, and writes the quickest of the seeds that find each bug.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import pytest

from penstock.testing.simulation import run
from penstock.testing.simulation.run import Outcome, Simulation
from penstock.testing.simulation.scenario import Scenario

RUNS_MAX = 1500
STEPS_MAX = 40_000
"""A run with a bug that goes on for longer does not end; one without it must take less than half of them."""
FINDERS = Path(__file__).with_name("finders.json")
"""The seed that found each bug the last time: it is tried first."""
RENEWING = 8 if os.environ.get("RENEW_FINDERS") else 0
"""How many seeds are tried for the quickest one that finds a bug."""

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
    name = mutation.__name__
    finders: dict[str, int] = json.loads(FINDERS.read_text())
    seeds = seeds if name not in finders else chain([finders[name]], seeds)
    changed = (found for seed in seeds if (found := change(Scenario.of(seed))) is not None)
    found = list(finding(mutation, islice(changed, RENEWING), monkeypatch, seen))
    found = found or list(islice(finding(mutation, islice(changed, RUNS_MAX), monkeypatch, seen), 1))
    if not found:
        pytest.fail(f"{RUNS_MAX} runs do not find it")
    if RENEWING:
        finders[name] = min(found, key=lambda each: each[1])[0]
        FINDERS.write_text(json.dumps(dict(sorted(finders.items())), indent=2) + "\n")


def finding(
    mutation: Mutation, scenarios: Iterable[Scenario], monkeypatch: Patch, seen: Callable[[Outcome], bool]
) -> Iterator[tuple[int, int]]:
    """The seeds that find a bug, and how many steps each takes with it and without it."""
    for scenario in scenarios:
        mutation(monkeypatch)
        monkeypatch.setattr(run, "STEPS_MAX", STEPS_MAX)
        spoilt = Simulation(scenario)
        try:
            if seen(spoilt.run()):
                continue
            print(f"SEED={scenario.seed}: something is not seen any more")
        except Exception as error:
            print(f"SEED={scenario.seed}: {str(error).splitlines()[0]}")
        finally:
            monkeypatch.undo()
        sound = Simulation(scenario)
        if seen(sound.run()) and sound.world.steps < STEPS_MAX / 2:
            yield scenario.seed, spoilt.world.steps + sound.world.steps
