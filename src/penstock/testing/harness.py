"""What users write their own tests with: a pipeline in one process, scripted input, a manual clock, exact output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType

from penstock.checks import OneOf
from penstock.connectors import memory, records
from penstock.connectors.base import End, Source
from penstock.control.exchanges import AUTO, checked_alternative
from penstock.durations import parse_us
from penstock.errors import InvalidGraph, InvalidOption, PenstockError, TypeMismatch
from penstock.operators import Form, Transform
from penstock.pipeline.graph import Graph, Node
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.plan import Plan
from penstock.pipeline.streams.stream import Stream
from penstock.testing.cluster import Cluster
from penstock.testing.collected import Collected
from penstock.testing.resuming import Committed, resumption_of
from penstock.testing.rows import assert_rows
from penstock.testing.script import Crash, Deed, Restart, Script, Switch, read_script
from penstock.types import nested_dict

_FOREVER_US = 1 << 62
_FIGURES = ("records_in", "records_out", "late", "skipped", "retried", "dead_letters", "timed_out", "over_bound")
_INTERVAL = "10ms"
"""How long a micro-batch gathers, in made-up time."""

Replacing = Callable[[str, Source], Source]
"""What takes the place of a source, by its name."""
Inputs = Mapping[str, "Source | End | Iterable[object]"]


class Harness:
    """Runs a pipeline under a manual clock, without Spark, with the same operators and the same dataset.

    Parameters
    ----------
    pipeline : Pipeline
        What to test, ``first + second`` for several; every sink is replaced by one that collects.
    inputs : mapping, optional
        Sources by operation name that take the place of the pipeline's own, such as ``ps.records([...], schema=…)``;
        a plain list of rows is read with the schema of the source it replaces. All rows are due at once: put
        ``ps.testing.At("1s")`` into the list before rows that shall come a second after the start. Other marks in the
        list have something happen when the job gets there: ``CRASH``, ``RESTART``, ``PAUSE``, ``BURST``, ``SWITCH``.
    parallelism : int
        Instances of keyed operations.
    epoch : str
        Interval between commits, in made-up time.
    idle : str
        After how long without a record a partition is not waited for, in made-up time.

    Examples
    --------
    >>> rows = [{"user": "a"}, CRASH, {"user": "a"}]                               # doctest: +SKIP
    >>> with Harness(pipeline, inputs={"clicks": rows}) as harness:                # doctest: +SKIP
    ...     harness.run()
    ...     harness.assert_rows([{"user": "a", "count": 2}])
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        inputs: Inputs | None = None,
        parallelism: int = 1,
        epoch: str = "1s",
        idle: str = "2s",
    ) -> None:
        self._inputs = named_inputs(inputs)
        self._scripts: dict[str, Script] = {}
        self._sinks: dict[str, Collected] = {}
        self._dead = Collected()
        self._options = Options.of(name="test", parallelism=parallelism, epoch=epoch, idle=idle, interval=_INTERVAL)
        self._pipeline = pipeline
        self._form = Form.RECORD
        self._plan = self._laid_out(pipeline)
        self._cluster = Cluster(self._plan)
        self._committed: Committed | None = None
        self._deeds = sorted((deed for each in self._scripts.values() for deed in each.deeds), key=lambda deed: deed[0])
        """What the marks of the scripts ask for and has not been done, in the order of time."""

    def _laid_out(self, pipeline: Pipeline) -> Plan:
        nodes = replaced(pipeline, self._source)
        unknown = self._inputs.keys() - {node.name for node in nodes if node.source is not None}
        if unknown:
            known = ", ".join(node.name for node in nodes if node.source is not None)
            raise InvalidGraph(f"there is no source '{min(unknown)}'.", hint=f"Sources: {known}.")
        for at, node in enumerate(nodes):
            if node.sink is not None:
                nodes[at] = replace(node, body=self._sinks.setdefault(node.name, Collected()))
        return Plan.of(Graph.check(nodes), self._options, self._dead)

    def _source(self, name: str, own: Source) -> Source:
        if name not in self._inputs:
            return own
        given = self._inputs[name]
        if isinstance(given, Source | End):
            return given.source() if isinstance(given, End) else given
        script = self._scripts.setdefault(name, read_script(given))
        return records(script.items, schema=own.schema)

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the job where it is, and free what it holds; again is the same as once."""
        self._cluster.close()

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
        self._run_until(self._cluster.now_us + parse_us(duration, option="duration"))

    def _run_until(self, until_us: int) -> None:
        while self._deeds and self.start_us + self._deeds[0][0] <= until_us and not self.ended:
            at_us, deed = self._deeds.pop(0)
            self._cluster.run_until(self.start_us + at_us)
            self._do(deed)
        self._cluster.run_until(until_us)

    def _do(self, deed: Deed) -> None:
        match deed:
            case Crash(worker=worker):
                self.crash(worker)
            case Restart():
                self.restart()
            case Switch(to=to):
                self.switch(to or (Form.RECORD if self._form is Form.BATCH else Form.BATCH).value)

    def crash(self, worker: int | None = None) -> None:
        """Lose a worker, or all of them, with all they hold; others take their places and the job goes on."""
        workers = range(self._plan.workers)
        if worker is not None and worker not in workers:
            raise InvalidOption(option="worker", given=worker, allowed=f"0 to {len(workers) - 1}")
        for each in workers if worker is None else [worker]:
            self._cluster.crash(each)

    def restart(self, pipeline: Pipeline | None = None, *, parallelism: int | None = None) -> None:
        """Lose the driver and all workers, and start the job again from its last commit.

        Parameters
        ----------
        pipeline : Pipeline, optional
            The pipeline as it has become meanwhile; one that no longer fits its state is refused, as `ps.run` does.
        parallelism : int, optional
            Another one than before.
        """
        old = self._cluster
        if old.commits:  # else it goes on from what the run before has committed, as this one did
            self._committed = self._plan, old.commits[-1]
        if parallelism is not None:
            self._options = replace(self._options, parallelism=Options.of(parallelism=parallelism).parallelism)
        self._pipeline = pipeline or self._pipeline
        plan = self._laid_out(self._pipeline)
        resumption = resumption_of(self._committed, plan, old.disk)
        old.close()
        self._plan, self._cluster = plan, Cluster(plan, resumption, old.disk, now_us=old.now_us)
        if self._form is Form.BATCH:
            self._apply_form()

    def switch(self, form: str) -> None:
        """Have all operations that can change their form compute in this one, ``"batch"`` or ``"record"``."""
        self._form = OneOf(Form).read("form", form)
        self._apply_form()

    def _apply_form(self) -> None:
        """Have the user settle the form of everything that can change it."""
        for unit in self._plan.units:
            if unit.movable:
                first, last = (unit.movable[0], unit.movable[-1]) if self._form is Form.BATCH else (0, -1)
                self._cluster.switch(unit.id, first, last)

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
        self._run_until(_FOREVER_US)

    def rows(self, sink: str | None = None) -> list[dict[str, object]]:
        """Return what a sink has got in committed epochs; the name may be left out if there is one sink."""
        return [nested_dict(row) for row in self._sink(sink).rows]

    def assert_rows(
        self, expected: Iterable[object], sink: str | None = None, *, in_order: bool = False, tolerance: float = 0.0
    ) -> None:
        """Raise AssertionError unless a sink has got exactly these rows, with a line for each that differs.

        Parameters
        ----------
        expected : iterable
            Dicts, tuples in column order, records, or bare values for a single column.
        sink : str
            Its name; it may be left out if there is one sink.
        in_order : bool
            Whether their order counts too.
        tolerance : float
            By how much a fraction may be off, as a share of it; a sum of them depends on the order of the additions.
        """
        __tracebackhide__ = True
        found = self._sink(sink)
        assert found.schema is not None  # it was checked when the pipeline was laid out
        rows = []
        for at, row in enumerate(expected):
            try:
                rows.append(nested_dict(found.schema.coerce(row)))
            except PenstockError as error:
                error.what = f"expected row {at}: {error.what}"
                raise
        assert_rows(self.rows(sink), rows, in_order=in_order, tolerance=tolerance)

    def _sink(self, sink: str | None) -> Collected:
        if sink is None:
            if len(self._sinks) != 1:
                raise PenstockError("name the sink.", hint=f"Sinks: {', '.join(self._sinks)}.")
            sink = next(iter(self._sinks))
        if sink not in self._sinks:
            raise InvalidGraph(f"there is no sink '{sink}'.", hint=f"Sinks: {', '.join(self._sinks)}.")
        return self._sinks[sink]

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


def named_inputs(inputs: Inputs | None) -> dict[str, Source | End | Iterable[object]]:
    """Check that inputs have the names of sources."""
    if inputs is not None and not isinstance(inputs, Mapping):
        raise TypeMismatch(what=f"inputs is a {type(inputs).__name__}.", hint='Name the source: {"events": [rows]}.')
    return dict(inputs or {})


def replaced(pipeline: Pipeline, source: Replacing) -> list[Node]:
    """The nodes of a pipeline with other sources, which have the schema of those whose place they take."""
    if not isinstance(pipeline, Pipeline):
        raise TypeMismatch(what=f"{pipeline!r} is not a pipeline.", hint="End the stream with .to(…).")
    nodes = []
    for node in pipeline.nodes():
        if isinstance(node.body, Transform):
            raise PenstockError(
                "a transformation runs on Spark, and there is none here.",
                operation=node.name,
                hint="Run the pipeline with ps.run, or try the function on a DataFrame.",
            )
        if node.source is not None:
            given = source(node.name, node.source)
            if given.schema != node.source.schema:
                raise InvalidGraph(
                    f"the input has ({given.schema.ddl}), not ({node.source.schema.ddl}).", operation=node.name
                )
            node = replace(node, body=given)
        nodes.append(node)
    return nodes


def collect(stream: Stream, *, inputs: Inputs | None = None, parallelism: int = 1) -> list[dict[str, object]]:
    """Run a stream whose sources end, and return all of its records."""
    harness = Harness(stream.to(memory()), inputs=inputs, parallelism=parallelism)
    harness.run()
    return harness.rows()
