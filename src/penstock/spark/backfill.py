"""A pipeline over history: the graph as DataFrames. `ps.backfill` and `penstock backfill` call it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from penstock.connectors.base import Sink, SinkWriter, Source, SourceReader, WriterContext
from penstock.errors import InvalidGraph, InvalidOption, nearest
from penstock.expr import Column, col, infer
from penstock.operators import (
    DEAD_LETTER_SCHEMA,
    DEAD_LETTERS,
    LATE,
    MAIN,
    REST,
    ErrorPolicy,
    Filter,
    How,
    Lookup,
    MapAsync,
    Processing,
    Project,
    Split,
    Table,
    Transform,
    Watermark,
)
from penstock.operators.alternatives import Alternatives
from penstock.pipeline.graph import Graph, Input, Node
from penstock.pipeline.pipeline import Pipeline
from penstock.spark import sources
from penstock.spark.columns import Dialect, NotNative, Sql, spark_column
from penstock.spark.frames import DataFrame, Frame, Step
from penstock.spark.keyed import compile_keyed, dead_letters
from penstock.spark.tables import SparkTable
from penstock.types import Schema


def backfill(
    pipeline: Pipeline | Sequence[Pipeline], inputs: Mapping[str, Any] | None = None, *, spark: Any = None
) -> dict[str, DataFrame]:
    """Compile a pipeline to Spark DataFrames, to run it over history.

    Nothing runs before one of the DataFrames is read or written. They are ordinary ones: ``.explain()`` shows the plan,
    and any size will do. Where nothing is late they hold what the streaming job would send to its sinks; of running
    results, the last ones.

    Parameters
    ----------
    pipeline : Pipeline
        What `ps.run` takes; several as a list.
    inputs : mapping, optional
        The history, by the name of a source: a DataFrame, or a path of Parquet, ORC, JSON or CSV files. Under the name
        of an operation it takes the place of what the operation gives, and what is before it is left out. Sources
        that have data of their own, such as files, are read where nothing is given for them.
    spark : SparkSession, optional
        The session; that of the inputs, the active one or a new one where none is given.

    Returns
    -------
    dict
        A DataFrame for every sink, by the sink's name; under ``dead_letters`` the bad records, where operations have
        that policy.

    Examples
    --------
    >>> history = ps.backfill(pipeline, {"ad-events": "history/*.parquet"})  # doctest: +SKIP
    >>> history["to_files"].write.parquet("out")                             # doctest: +SKIP
    """
    from penstock.spark.sessions import dialect_of, session_for

    pipelines = [pipeline] if isinstance(pipeline, Pipeline) else list(pipeline)
    nodes = reduce(lambda one, other: one + other, pipelines).nodes()
    own = {node.name: node.source for node in nodes if node.source is not None}
    graph = Graph.check(map(_closed, nodes))
    wanted = dict(inputs or {})
    known = [node.name for node in graph.nodes if node.sink is None]
    for name in wanted:
        if name not in known:
            raise InvalidGraph(
                f"there is no source or operation '{name}'.",
                hint=f"There are: {', '.join(known)}.{nearest(name, known)}",
            )
    session = session_for(spark, wanted.values())
    _check_names(graph, session)
    return _Compiler(graph, own, wanted, session, dialect_of(session)).sinks()


def _check_names(graph: Graph, session: Any) -> None:
    """To Spark ``a`` and ``A`` are one column, unless it is told otherwise."""
    if session.conf.get("spark.sql.caseSensitive").lower() == "true":
        return
    for (node, _), schema in graph.ports.items():
        lower = [name.lower() for name in schema.names]
        twice = next((name for name in schema.names if lower.count(name.lower()) > 1), None)
        if twice is not None:
            raise InvalidOption(
                option="spark.sql.caseSensitive",
                given=False,
                allowed=f"true, where columns differ in their case only, as '{twice}' does",
                operation=node,
            )


class _NoSource(Source):
    """What stands in the checked graph for a source: only its schema counts, whether or not it is there."""

    kind = "history"

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    @property
    def schema(self) -> Schema:
        return self._schema

    def partitions(self, parallelism: int) -> int:
        raise NotImplementedError("it is never read")

    def reader(self, partition: int, partitions: int, start_us: int) -> SourceReader:
        raise NotImplementedError("it is never read")


class _NoSink(Sink):
    """What stands there for a sink: nothing is written, so no place has to be free."""

    kind = "history"

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        raise NotImplementedError("it is never written to")


def _closed(node: Node) -> Node:
    """A node whose outside world is not looked at."""
    if node.source is not None:
        return replace(node, body=_NoSource(node.source.schema))
    return replace(node, body=_NoSink()) if node.sink is not None else node


class _Compiler:
    """Walks the graph from the sinks up, and makes each step's frames once."""

    def __init__(
        self, graph: Graph, own: Mapping[str, Source], given: Mapping[str, Any], session: Any, dialect: Dialect
    ) -> None:
        self._graph = graph
        self._own = own
        self._given = given
        self._session = session
        self._dialect = dialect
        self._start_us = time.time_ns() // 1000
        self._frames: dict[tuple[str, str], Frame] = {}
        self._letters: dict[str, list[DataFrame]] = {}

    def sinks(self) -> dict[str, DataFrame]:
        """The DataFrame of every sink."""
        made = {node.name: self._frame(node.inputs[0]).df for node in self._graph.nodes if node.sink is not None}
        policies = {node.on_error for node in self._graph.nodes}
        if ErrorPolicy.DEAD_LETTER in policies and DEAD_LETTERS not in made:
            made[DEAD_LETTERS] = self._dead_letters()
        return made

    def _dead_letters(self) -> DataFrame:
        from penstock.spark.types import spark_schema

        nothing = self._session.createDataFrame([], spark_schema(DEAD_LETTER_SCHEMA))
        letters = [each for made in self._letters.values() for each in made]
        return reduce(lambda one, other: one.union(other), letters, nothing)

    def _frame(self, edge: Input) -> Frame:
        place = edge.node, edge.port
        if place not in self._frames:
            self._frames[place] = self._settled(edge, self._made(self._graph.node(edge.node), edge.port))
        return self._frames[place]

    def _settled(self, edge: Input, frame: Frame) -> Frame:
        """What several read is handed to Python once for each of them, but planned as one DataFrame."""
        alone = len(self._graph.consumers(edge.node, edge.port)) == 1
        return frame if alone or not frame.steps else Frame(frame.df, frame.schema)

    def _made(self, node: Node, port: str) -> Frame:
        schema = self._graph.ports[node.name, port]
        if node.name in self._given and port == MAIN:
            return Frame(sources.given(node.name, schema, self._given[node.name], self._session), schema)
        if node.source is not None:
            return Frame(sources.own(node.name, self._own[node.name], self._session, self._start_us), schema)
        inputs = [self._frame(edge) for edge in node.inputs]
        if node.body is None:
            return Frame(reduce(lambda one, other: one.union(other), (each.df for each in inputs)), schema)
        operation = node.operation
        assert operation is not None
        if isinstance(operation, Watermark):
            return inputs[0]
        if isinstance(operation, MapAsync | Processing | Alternatives):
            raise InvalidGraph(
                f"a backfill cannot run {node.kind} yet.",
                operation=node.name,
                hint=f"Give its output as an input: {{'{node.name}': …}}, or leave it out of this pipeline.",
            )
        if operation.stateful:
            return Frame(self._keyed(node, inputs, schema, port), schema)
        if node.on_error in (ErrorPolicy.FAIL, ErrorPolicy.RETRY):
            try:
                return self._native(node, inputs[0], port, schema)
            except NotNative:
                pass
        return self._stepped(node, inputs[0], port, schema)

    def _keyed(self, node: Node, inputs: list[Frame], schema: Schema, port: str) -> DataFrame:
        if port == LATE:
            return inputs[0].df.limit(0)  # all of history is there: nothing is late
        assert node.operation is not None
        if node.on_error is ErrorPolicy.DEAD_LETTER:
            self._letters[node.name] = dead_letters(node.name, node.operation, inputs, schema)
        return compile_keyed(node.name, node.operation, inputs, schema, node.on_error)

    def _stepped(self, node: Node, frame: Frame, port: str, schema: Schema) -> Frame:
        """Run an operation through its own batch form."""
        assert node.operation is not None
        output = self._graph.ports[node.name, MAIN]
        step = Step(node.name, node.operation, frame.schema, output, node.on_error)
        stepped = frame.then(step)
        if node.on_error is ErrorPolicy.DEAD_LETTER:
            self._letters[node.name] = [Frame(frame.df, frame.schema).then(step).dead_letters]
        return stepped if port == MAIN else Frame(stepped.port(port, schema), schema)

    def _native(self, node: Node, frame: Frame, port: str, schema: Schema) -> Frame:
        """Run an operation as Spark's own plan, or raise `NotNative`."""
        from pyspark.sql import functions as F

        operation = node.operation
        if isinstance(operation, Filter):
            return Frame(frame.df.where(self._column(operation.condition, frame.schema)), schema)
        if isinstance(operation, Project):
            named = {infer(column, frame.schema).name: column for column in operation.columns}
            made = [self._column(named.get(name, col(name)), frame.schema).alias(name) for name in schema.names]
            return Frame(frame.df.select(*made), schema)
        if isinstance(operation, Split):
            left, chosen = F.lit(True), {}
            for name, condition in operation.branches:
                true = F.coalesce(self._column(condition, frame.schema), F.lit(False))
                chosen[name], left = left & true, left & ~true
            chosen[REST] = left
            return Frame(frame.df.where(chosen[port]), schema)
        if isinstance(operation, Transform):
            return Frame(sources.checked(node.name, schema, operation.function(frame.df)), schema)
        if isinstance(operation, Lookup) and isinstance(operation.table, Table | SparkTable):
            return Frame(self._lookup(operation, operation.table, frame, schema), schema)
        raise NotNative(f"{node.kind} runs through its own batch form")

    def _column(self, column: Column, schema: Schema) -> Sql:
        return spark_column(column, schema, self._dialect)

    def _lookup(self, of: Lookup, table: Table | SparkTable, frame: Frame, schema: Schema) -> DataFrame:
        import pyarrow as pa
        from pyspark.sql import functions as F

        if isinstance(table, SparkTable):
            rows = table.frame(self._session)
        else:
            rows = self._session.createDataFrame(pa.Table.from_batches([table.batch()], table.schema.arrow))
        rows = rows.select(*(F.col(name).alias(f"_t_{name}") for name in table.schema.names))
        kind = "left" if of.how is How.LEFT else "inner"
        small = rows if isinstance(table, SparkTable) else F.broadcast(rows)
        joined = frame.df.join(small, F.col(of.on) == F.col(f"_t_{table.key}"), kind)
        return joined.select(
            *(F.col(name) if name in frame.schema else F.col(f"_t_{name}").alias(name) for name in schema.names)
        )
