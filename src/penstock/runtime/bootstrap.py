"""Live jobs that begin with history: `ps.bootstrap` writes what they begin with, `bootstrap=` of `ps.run` takes it.

What is written is a checkpoint: a commit record of epoch 1, and snapshots with the state of every operation that has
some and with the position of every source that was read. A job takes it where its own checkpoint is new, as it would
take that of a run before, with any parallelism; after its first commit it goes on from its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from penstock.connectors.base import Source
from penstock.connectors.store import START_OUTAGE_S, is_url, shown
from penstock.control.resume import anchors
from penstock.engine.snapshot import encode_snapshot
from penstock.errors import InvalidGraph, InvalidOption, PenstockError, nearest
from penstock.pipeline.graph import Graph, Node
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.runtime.checkpoints import CheckpointStore, new_record
from penstock.spark.backfill import NoSink, check_names, checked_inputs, closed_off
from penstock.spark.bootstrap import CutCompiler
from penstock.spark.cuts import Cut, find_cut
from penstock.spark.frames import DataFrame
from penstock.spark.states import EPOCH, empty_snapshot


def bootstrap(
    pipeline: Pipeline | Sequence[Pipeline],
    inputs: Mapping[str, Any] | None = None,
    *,
    to: str | os.PathLike[str],
    until: Mapping[str, Any] | None = None,
    parallelism: int | None = None,
    spark: Any = None,
) -> dict[str, DataFrame]:
    """Run a pipeline over history up to a cut with Spark, and write the state that a live job goes on from.

    The state is written when the function returns. ``ps.run(pipeline, bootstrap=to)`` then goes on at the exact
    position: no record is missing between history and live, and none counts twice.

    Parameters
    ----------
    pipeline : Pipeline
        What `ps.run` takes; several as a list.
    inputs : mapping, optional
        History by the name of a source, as for `ps.backfill`. The live job then begins where the source itself says,
        such as ``start=`` of a topic. A source for which nothing is given is read by its own readers up to the cut,
        and the live job goes on there.
    to : path
        A new directory, or a URL, that every machine of the cluster sees.
    until : mapping, optional
        The cut, by the name of a source that is read: of a topic offsets by partition, or a time; of other sources the
        number of records by partition. Default: all that is there now.
    parallelism : int
        Parts that the state is dealt out to. The job that takes it may have another.
    spark : SparkSession, optional
        The session, as for `ps.backfill`.

    Returns
    -------
    dict
        What the stream would have sent to its sinks until the cut: a DataFrame for each, by its name. Windows that are
        open at the cut are not among it: the live job sends them.

    Examples
    --------
    >>> sent = ps.bootstrap(pipeline, to="history-state")         # doctest: +SKIP
    >>> sent["counts"].write.parquet("counts")                    # doctest: +SKIP
    >>> ps.run(pipeline, bootstrap="history-state")               # doctest: +SKIP
    """
    from penstock.spark.sessions import dialect_of, session_for

    pipelines = [pipeline] if isinstance(pipeline, Pipeline) else list(pipeline)
    whole = reduce(lambda one, other: one + other, pipelines)
    nodes = whole.nodes()
    graph = Graph.check(map(closed_off, nodes))
    given = checked_inputs(graph, inputs)
    own = {node.name: node.source for node in nodes if node.source is not None and node.name not in given}
    wanted = _needed(graph, given, own)
    for name in until or {}:
        if name not in wanted:
            hint = nearest(name, wanted) if name not in given else " Its history is given: leave out what is too much."
            raise InvalidOption(option="until", given=name, allowed=", ".join(wanted) or "nothing", hint=hint)
    place = os.fspath(to)
    place = place if is_url(place) else os.path.abspath(place)  # noqa: PTH100 (tasks have other directories)
    store = CheckpointStore(place, durable=True)
    store.wait_for(START_OUTAGE_S)
    if store.last_commit() is not None:
        raise InvalidOption(option="to", given=shown(place), allowed="a new directory: there is a checkpoint in it")
    plan = _plan(graph, wanted, Options.of(parallelism=parallelism))
    session = session_for(spark, given.values())
    check_names(graph, session)
    start_us = time.time_ns() // 1000
    cuts = {
        unit.name: find_cut(
            unit.name, wanted[unit.name], (until or {}).get(unit.name), unit.partitions, start_us, session
        )
        for unit in plan.units
        if unit.name in wanted
    }
    compiler = CutCompiler(graph, plan, cuts, given, session, dialect_of(session))
    sinks = compiler.sinks()
    store.create()
    stored = [*_positions(plan, cuts, store), *compiler.states(partial(write, place))]
    known = {each.unit for each in stored}
    record = new_record(
        job="",
        job_id=os.urandom(8).hex(),
        attempt=1,
        epoch=EPOCH,
        generation=0,
        start_us=start_us,
        final=False,
        # A source that was not read is as good as new to the live job: it begins where it says itself.
        anchors=[each for each in anchors(plan) if each.unit in known and not each.is_sink],
        sinks={},
        snapshots=stored,
        outputs=[],
    )
    store.write_commit(record)
    return sinks


def write(place: str, name: str, data: bytes) -> int:
    """Store a snapshot, from any process."""
    return CheckpointStore(place, durable=True).write_snapshot(name, data)


def _needed(graph: Graph, given: Mapping[str, Any], own: Mapping[str, Source]) -> dict[str, Source]:
    """The sources that are read: those above what is given are not."""
    found: dict[str, Source] = {}
    todo = [node for node in graph.nodes if node.sink is not None]
    while todo:
        node = todo.pop()
        if node.name in given:
            _check_given(graph, node)
            continue
        if node.name in own:
            found[node.name] = own[node.name]
        todo += [graph.node(edge.node) for edge in node.inputs]
    return {name: source for name, source in own.items() if name in found}


def _check_given(graph: Graph, node: Node) -> None:
    """Refuse an input behind state: nobody would know that state."""
    todo = [node]
    while todo:
        each = todo.pop()
        if each.operation is not None and each.operation.stateful:
            raise InvalidGraph(
                f"its output is given, and the state of '{each.name}' does not follow from that.",
                operation=node.name,
                hint=f"Give the history of a source, or of an operation before '{each.name}'.",
            )
        todo += [graph.node(edge.node) for edge in each.inputs]


def _plan(graph: Graph, read: Mapping[str, Source], options: Options) -> Plan:
    """Lay the pipeline out as the live job would; sinks, and sources that are not read, are not looked at."""
    for name, source in read.items():
        try:
            source.check()
        except PenstockError as error:
            raise error.at(name) from None
    placed = tuple(replace(node, body=read.get(node.name, node.body)) for node in graph.nodes)
    return Plan.of(replace(graph, nodes=placed), options, NoSink())


def _positions(plan: Plan, cuts: Mapping[str, Cut], store: CheckpointStore) -> list[m.Stored]:
    """Write where each source that was read goes on."""
    stored = []
    for unit in plan.units:
        if unit.name not in cuts:
            continue
        parts = cuts[unit.name].parts
        for instance in range(unit.instances):
            mine = [part for part in parts if part.partition % unit.instances == instance]
            snapshot = empty_snapshot(
                unit,
                positions={part.partition: part.position for part in mine},
                records=sum(part.records for part in mine),
            )
            name = f"u{unit.id}-i{instance}-e{EPOCH:08d}-bootstrap"
            crc = store.write_snapshot(name, encode_snapshot(snapshot))
            stored.append(m.Stored(unit=unit.id, instance=instance, epoch=EPOCH, depth=0, name=name, crc=crc))
    return stored
