"""What users write their own tests with: a pipeline in one process, scripted input, a manual clock, exact output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.connectors import memory, records
from penstock.connectors.base import Sink, Source
from penstock.connectors.memory import Memory
from penstock.control.uses import AUTO, checked_alternative
from penstock.durations import parse_us
from penstock.errors import InvalidGraph, InvalidOption, PenstockError
from penstock.operators import Transform
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.plan import Plan
from penstock.pipeline.streams.stream import Stream
from penstock.testing.cluster import Cluster
from penstock.types import nested_dict

_FOREVER_US = 1 << 62
_FIGURES = ("records_in", "records_out", "late", "skipped", "retried", "dead_letters")


class Harness:
    """Runs a pipeline under a manual clock, without Spark, with the same operators and the same dataset.

    Parameters
    ----------
    pipeline : Pipeline
        What to test, ``first + second`` for several; every sink is replaced by one that collects.
    inputs : mapping, optional
        Sources by operation name that take the place of the pipeline's own, such as ``ps.records([...], schema=…)``;
        a plain list of rows is read with the schema of the source it replaces. All rows are due at once: put
        ``ps.testing.At("1s")`` into the list before rows that shall come a second after the start.
    parallelism : int
        Instances of keyed operations.
    epoch : str
        Interval between commits, in made-up time.
    idle : str
        After how long without a record a partition is not waited for, in made-up time.

    Examples
    --------
    >>> harness = Harness(pipeline, inputs={"clicks": [{"user": "a"}]})   # doctest: +SKIP
    >>> harness.run()                                                     # doctest: +SKIP
    >>> harness.rows()                                                    # doctest: +SKIP
    [{'user': 'a', 'count': 1}]
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        inputs: Mapping[str, Source | Iterable[object]] | None = None,
        parallelism: int = 1,
        epoch: str = "1s",
        idle: str = "2s",
    ) -> None:
        nodes = []
        wanted = dict(inputs or {})
        self._sinks: dict[str, Memory] = {}
        for node in pipeline.nodes():
            if isinstance(node.body, Source) and node.name in wanted:
                given = wanted.pop(node.name)
                source = given if isinstance(given, Source) else records(list(given), schema=node.body.schema)
                if source.schema != node.body.schema:
                    raise InvalidGraph(
                        f"the input has ({source.schema.ddl}), not ({node.body.schema.ddl}).",
                        operation=node.name,
                    )
                node = replace(node, body=source)
            elif isinstance(node.body, Transform):
                raise PenstockError(
                    "a transformation runs on Spark, and there is none here.",
                    operation=node.name,
                    hint="Run the pipeline with ps.run, or try the function on a DataFrame.",
                )
            elif isinstance(node.body, Sink):
                self._sinks[node.name] = memory()
                node = replace(node, body=self._sinks[node.name])
            nodes.append(node)
        if wanted:
            known = ", ".join(n.name for n in nodes if isinstance(n.body, Source))
            raise InvalidGraph(f"there is no source '{next(iter(wanted))}'.", hint=f"Sources: {known}.")
        self._dead = memory()
        options = Options.of(name="test", parallelism=parallelism, epoch=epoch, idle=idle)
        self._plan = Plan.of(Graph.check(nodes), options, self._dead)
        self._cluster = Cluster(self._plan)

    @property
    def now_us(self) -> int:
        """The manual clock."""
        return self._cluster.now_us

    @property
    def start_us(self) -> int:
        """When the sources' schedules begin."""
        return self._cluster.start_us

    @property
    def ended(self) -> bool:
        """Whether every source has ended and everything is committed."""
        return self._cluster.ended

    @property
    def committed_epoch(self) -> int:
        """Last epoch committed everywhere."""
        return self._cluster.committed_epoch

    def advance(self, duration: str | float) -> None:
        """Let time pass, and do all that falls into it."""
        self._cluster.run_until(self._cluster.now_us + parse_us(duration, option="duration"))

    def use(self, operation: str, alternative: str) -> None:
        """Have an operation use one of its alternatives from here on."""
        checked_alternative(self._plan, operation, alternative)
        self._cluster.use(operation, None if alternative == AUTO else alternative)

    def drain(self) -> None:
        """Stop the sources and finish, as Ctrl-C does."""
        self._cluster.drain()
        self._cluster.run_until(_FOREVER_US)

    def run(self) -> None:
        """Run until every source has ended; only for pipelines whose sources do."""
        self._cluster.run_until(_FOREVER_US)

    def rows(self, sink: str | None = None) -> list[dict[str, object]]:
        """Return what a sink has got in committed epochs; the name may be left out if there is one sink."""
        if sink is None:
            if len(self._sinks) != 1:
                raise PenstockError("name the sink.", hint=f"Sinks: {', '.join(self._sinks)}.")
            sink = next(iter(self._sinks))
        if sink not in self._sinks:
            raise InvalidGraph(f"there is no sink '{sink}'.", hint=f"Sinks: {', '.join(self._sinks)}.")
        return [nested_dict(row) for row in self._sinks[sink].rows]

    def dead_letters(self) -> list[dict[str, object]]:
        """Return the records that went to the dead letters."""
        return [nested_dict(row) for row in self._dead.rows]

    def count(self, operation: str, figure: str) -> int:
        """Return a counter of an operation, such as ``late``, ``skipped``, ``records_in``, summed over instances."""
        figures = [each for worker in self._cluster.workers for each in worker.figures() if each.operation == operation]
        if not figures:
            known = dict.fromkeys(each.operation for worker in self._cluster.workers for each in worker.figures())
            raise InvalidGraph(f"there is no operation '{operation}'.", hint=f"Operations: {', '.join(known)}.")
        if not isinstance(getattr(figures[0], figure, None), int):
            raise InvalidOption(option="figure", given=figure, allowed=", ".join(_FIGURES))
        return sum(getattr(each, figure) for each in figures)


def collect(
    stream: Stream, *, inputs: Mapping[str, Source | Iterable[object]] | None = None, parallelism: int = 1
) -> list[dict[str, object]]:
    """Run a stream whose sources end, and return all of its records."""
    harness = Harness(stream.to(memory()), inputs=inputs, parallelism=parallelism)
    harness.run()
    return harness.rows()
