"""The simulator over a pipeline of the user's, with one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from penstock.checks import Whole
from penstock.connectors import records
from penstock.connectors.base import End, Source
from penstock.connectors.memory import At
from penstock.errors import InvalidGraph, NotSerializable, PenstockError
from penstock.operators import ErrorPolicy
from penstock.pipeline.graph import Node
from penstock.pipeline.pipeline import Pipeline
from penstock.testing.harness import Harness, Inputs, named_inputs, replaced
from penstock.testing.rows import Row, as_dict
from penstock.testing.script import read_script

if TYPE_CHECKING:
    from penstock.testing.simulation.given import GivenScenario

SEED_VARIABLE = "PENSTOCK_SEED"
"""With this in the environment only that seed is run, and everything that happens is printed."""
_LINES_MAX = 12


@dataclass(frozen=True)
class Simulated:
    """What the seeds have gone through.

    Attributes
    ----------
    seeds, faults, recoveries, switches, exchanges : int
        Runs, faults that struck, recoveries, units that changed form, and alternatives that took over.
    epochs : int
        Epochs that were committed.
    """

    seeds: int
    faults: int
    recoveries: int
    switches: int
    exchanges: int
    epochs: int


def simulate(
    pipeline: Pipeline,
    inputs: Inputs | None = None,
    *,
    seeds: int | Iterable[int] = 20,
    expected: Mapping[str, Iterable[object]] | None = None,
    latest: Mapping[str, Sequence[str]] | None = None,
    alternatives: bool = False,
) -> Simulated:
    """Run a pipeline under faults that follow from seeds, and compare its output with that of an undisturbed run.

    Driver, workers and slots are the real machines, in one process and in made-up time. Workers and slots are killed,
    stopped and cut off at every step of the protocol, messages are lost, doubled and reordered, operations change form,
    the driver dies and the job is resumed. The same seed is the same run. It needs no Spark.

    Parameters
    ----------
    pipeline : Pipeline
        What to test; its sinks are replaced.
    inputs : mapping, optional
        Rows by name of the source, as for `Harness`; a few hundred are enough. Rows of a list come at times that the
        seed decides, in their order.
    seeds : int or iterable of int
        How many runs, or which ones.
    expected : mapping, optional
        Rows by sink: what the output must be. Without it, what an undisturbed run over the same rows gives.
    latest : mapping, optional
        Sinks that get updates, with the columns that tell what is updated: the last row of each counts. Sinks behind an
        aggregate that tells every change are known without this.
    alternatives : bool
        Whether alternatives are exchanged, too; they must give the same results then.

    Raises
    ------
    AssertionError
        If anything is lost, doubled or wrong, or a run does not end; it says which seed it was, and how to replay it.

    Examples
    --------
    >>> ps.testing.simulate(pipeline, {"clicks": rows}, seeds=50)                      # doctest: +SKIP
    """
    __tracebackhide__ = True
    from penstock.testing.simulation.given import scenario_of, sink_schemas, updates

    named = named_inputs(inputs)
    fixed = {name: given if isinstance(given, Source | End) else list(given) for name, given in named.items()}
    make = _maker(pipeline, fixed)
    plain = make(None, 0)
    schemas = sink_schemas(plain)
    newest = {**updates(plain), **(latest or {})}
    for name, columns in newest.items():
        if name not in schemas:
            raise InvalidGraph(f"there is no sink '{name}'.", hint=f"Sinks: {', '.join(schemas)}.")
        for column in columns:
            schemas[name].field(column)
    _check_sendable(plain)
    has_dead_letters = any(node.on_error is ErrorPolicy.DEAD_LETTER for node in plain)
    wanted = _undisturbed(pipeline, fixed, schemas, newest)
    for name, rows in (expected or {}).items():
        if name not in schemas:
            raise InvalidGraph(f"there is no sink '{name}'.", hint=f"Sinks: {', '.join(schemas)}.")
        wanted[name] = [as_dict(schemas[name].coerce(row)) for row in rows]

    def scenario(seed: int) -> GivenScenario:
        return scenario_of(
            seed,
            make,
            records=sum(len(given) for given in fixed.values() if isinstance(given, list)),
            has_dead_letters=has_dead_letters,
            wanted=wanted,
            latest=newest,
            exchanges=alternatives,
        )

    return _run(scenario, seeds)


def _check_sendable(nodes: Sequence[Node]) -> None:
    """Refuse what could not be sent to workers: nothing is sent here."""
    from pyspark.cloudpickle import dumps

    for node in nodes:
        try:
            dumps(node.body)
        except Exception as error:
            raise NotSerializable(operation=node.name, cause=error) from error


def _run(scenario: Callable[[int], GivenScenario], seeds: int | Iterable[int]) -> Simulated:
    __tracebackhide__ = True
    from penstock.testing.simulation.run import Outcome, Simulation
    from penstock.testing.simulation.world import Violation

    replay = os.environ.get(SEED_VARIABLE)
    if replay is not None:
        chosen: list[int] = [int(replay)]
    else:
        chosen = list(range(Whole(1).read("seeds", seeds))) if isinstance(seeds, int) else list(seeds)
    outcomes: list[Outcome] = []
    for seed in chosen:
        simulation = None
        try:
            simulation = Simulation(scenario(seed), keep_lines=replay is not None)
            outcomes.append(simulation.run())
        except (PenstockError, AssertionError, LookupError, AttributeError, TypeError, ValueError) as error:
            what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
            raise Violation(f"seed {seed}: {what}\n{_story(simulation)}\n{_again(seed)}") from error
        finally:
            if replay is not None and simulation is not None:
                print("\n".join(simulation.world.lines or ()))
    return Simulated(
        seeds=len(chosen),
        faults=sum(len(each.injected) for each in outcomes),
        recoveries=sum(each.recoveries for each in outcomes),
        switches=sum(each.switches for each in outcomes),
        exchanges=sum(each.exchanges for each in outcomes),
        epochs=sum(each.epochs for each in outcomes),
    )


def _story(simulation: object) -> str:
    """What has struck."""
    faults = getattr(simulation, "injected", ())
    lines = [f"  {each.action.value}, when {each.moment.value if each.moment else 'its time came'}" for each in faults]
    return "\n".join(["what happened before:", *lines[:_LINES_MAX]]) if lines else "nothing had gone wrong before."


def _again(seed: int) -> str:
    return f"again, with everything that happens: {SEED_VARIABLE}={seed} and the same program; or seeds=[{seed}]."


def _maker(pipeline: Pipeline, inputs: Inputs) -> Callable[[Random | None, int], Sequence[Node]]:
    """Return what makes the pipeline's nodes, with rows that come at times drawn from a length."""
    known = [node.name for node in replaced(pipeline, lambda _, own: own) if node.source is not None]
    for name in inputs:
        if name not in known:
            raise InvalidGraph(f"there is no source '{name}'.", hint=f"Sources: {', '.join(known)}.")

    def make(random: Random | None, length_us: int) -> Sequence[Node]:
        def source(name: str, own: Source) -> Source:
            given = inputs.get(name, own)
            if isinstance(given, Source | End):
                return given.source() if isinstance(given, End) else given
            items = read_script(given).items
            if random is None or any(isinstance(item, At) for item in items):
                return records(items, schema=own.schema)
            times = sorted(random.randrange(length_us) for _ in items)
            spread = [each for time_us, row in zip(times, items, strict=True) for each in (At(time_us / 1e6), row)]
            return records(spread, schema=own.schema)

        return replaced(pipeline, source)

    return make


def _undisturbed(
    pipeline: Pipeline, inputs: Inputs, sinks: Iterable[str], latest: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[Row]]:
    """What a run without faults gives, by sink; refused where two such runs differ."""
    from penstock.operators import DEAD_LETTERS
    from penstock.testing.simulation.given import compared

    found: list[dict[str, Sequence[Row]]] = []
    for parallelism in (1, 3):
        with Harness(pipeline, inputs=_without_deeds(inputs), parallelism=parallelism, idle="1h") as harness:
            harness.run()
            rows: dict[str, Sequence[Row]] = {name: harness.rows(name) for name in sinks}
            letters = harness.dead_letters()
            rows[DEAD_LETTERS] = [{"operation": each["operation"], "record": each["record"]} for each in letters]
        found.append(rows)
    for name in sinks:
        wrong = compared(name, found[1][name], found[0][name], latest)
        if wrong is not None:
            raise AssertionError(
                f"sink '{name}' gets other rows with parallelism 3 than with 1, without any fault: {wrong}\n"
                f"If it gets updates, name what they are of: latest={{{name!r}: [columns]}}."
            )
    return found[0]


def _without_deeds(inputs: Inputs) -> Inputs:
    return {
        name: given if isinstance(given, Source | End) else read_script(given).items for name, given in inputs.items()
    }
