"""``ps.read_state``: the keyed state in a checkpoint, as rows and as a DataFrame; a running job is not disturbed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from penstock.connectors import memory
from penstock.connectors.base import Sink
from penstock.connectors.store import is_url, shown
from penstock.control.resume import Anchor, match
from penstock.engine.snapshot import decode_snapshot
from penstock.engine.stage import Stage
from penstock.engine.state import StateSnapshot, restore_state
from penstock.errors import CheckpointDamaged, CheckpointMismatch, InvalidOption, nearest
from penstock.operators import StatefulOperator
from penstock.operators.keyed.reduce import ReduceOperator
from penstock.operators.keyed.state import decode_piece
from penstock.operators.keys import key_group
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.runtime.checkpoints import CheckpointStore, CommitRecord
from penstock.spark.sessions import any_session
from penstock.spark.types import spark_schema
from penstock.types import Schema, nested_dict

_TRIES = 5
"""A job that runs may remove what an older commit needs while it is read; then a newer one is there."""
_RAW = Schema.parse("instance int, key_group int, space string, key string, value string")


@dataclass(frozen=True)
class State:
    """The state of one operation at a commit; :func:`read_state` makes it.

    Attributes
    ----------
    operation : str
        Name of the operation.
    epoch : int
        The commit that it is of.
    schema : Schema
        Columns of the DataFrame.
    rows : list of dict
        A row for each key, or for each key and window. Read without a pipeline, ``key`` and ``value`` are what is
        stored, as plain values.
    """

    operation: str
    epoch: int
    schema: Schema
    rows: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def to_df(self, spark: Any = None) -> Any:
        """The rows as a DataFrame of Spark's; stored keys and values as JSON text."""
        import pyarrow as pa

        rows = self.rows
        if self.schema is _RAW:
            rows = [{**row, "key": _json(row["key"]), "value": _json(row["value"])} for row in rows]
        batch = self.schema.to_batch([self.schema.coerce(row) for row in rows])
        made = any_session(spark).createDataFrame(pa.Table.from_batches([batch], self.schema.arrow))
        return made.select(*(made[field.name].cast(field.dataType) for field in spark_schema(self.schema).fields))


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def read_state(
    checkpoint: str | os.PathLike[str], *, operation: str | None = None, pipeline: Pipeline | None = None
) -> State:
    """Read the keyed state of an operation from a checkpoint, as of its last commit.

    Parameters
    ----------
    checkpoint : str or path
        What was given to ``ps.run(…, checkpoint=…)``; the job may be running.
    operation : str
        Its name, as ``penstock explain`` shows it; may be left out where one operation has state.
    pipeline : Pipeline
        The pipeline of the job. With it the rows of an aggregation are its results as they would be sent now, with
        their columns and types; without it they are what is stored.

    Examples
    --------
    >>> ps.read_state("checkpoint", operation="count", pipeline=pipeline).rows            # doctest: +SKIP
    [{'ad': 'ad-1', 'count': 17}]
    >>> ps.read_state("checkpoint").to_df(spark).groupBy("space").count().show()          # doctest: +SKIP
    """
    place = os.fspath(checkpoint)
    if not is_url(place) and not os.path.isdir(place):  # noqa: PTH112 (a URL, perhaps)
        raise InvalidOption(option="checkpoint", given=place, allowed="the checkpoint directory of a job")
    last, anchor, logs = _read(place, operation)
    if pipeline is not None:
        return _results(last, anchor, pipeline, place, logs)
    rows = [
        {"instance": instance, "key_group": key_group(key), "space": str(space), "key": _listed(key), "value": value}
        for instance, log in sorted(logs.items())
        for space, key, value in _stored(log)
    ]
    return State(anchor.name, last.epoch, _RAW, rows)


def _read(place: str, operation: str | None) -> tuple[CommitRecord, Anchor, dict[int, list[StateSnapshot]]]:
    store, tries = CheckpointStore(place, durable=True), 0
    while True:
        last, tries = store.last_commit(), tries + 1
        if last is None or not last.epoch:
            raise CheckpointMismatch(f"nothing is committed in '{shown(place)}' yet.", hint="Run the job for a while.")
        anchor = _anchor(last, operation)
        try:
            return last, anchor, _logs(store, last, anchor)
        except CheckpointDamaged:
            newer = store.last_commit()
            if tries == _TRIES or newer is None or newer.epoch == last.epoch:
                raise


def _anchor(last: CommitRecord, operation: str | None) -> Anchor:
    stateful = {each.name: each for each in last.anchors if not each.may_go and not each.is_sink}
    if operation is None and len(stateful) == 1:
        return next(iter(stateful.values()))
    if operation not in stateful:
        names = ", ".join(stateful) or "(no operation has state)"
        hint = nearest(operation, stateful) if operation else ""
        raise InvalidOption(option="operation", given=operation, allowed=names, hint=hint)
    return stateful[operation]


def _logs(store: CheckpointStore, last: CommitRecord, anchor: Anchor) -> dict[int, list[StateSnapshot]]:
    """By instance, what its state was written as."""
    logs: dict[int, list[StateSnapshot]] = {}
    stored: list[m.Stored] = [each for each in last.snapshots if each.unit == anchor.unit]
    for each in sorted(stored, key=lambda each: (each.instance, each.epoch)):
        state = decode_snapshot(store.read_snapshot(each)).state
        if state is not None:
            logs.setdefault(each.instance, []).append(state)
    return logs


def _stored(log: Sequence[StateSnapshot]) -> Iterator[tuple[object, object, object]]:
    """Space, key and value of every entry that pieces give."""
    found: dict[object, dict[object, object]] = {}
    for piece in (decode_piece(packed) for each in log for packed in each.pieces):
        for name in piece.gone:
            found.pop(name, None)
        for name, ids in piece.removed:
            for each in ids:
                found.get(name, {}).pop(_hashable(each), None)
        for name, entries in piece.entries:
            found.setdefault(name, {}).update((_hashable(each), value) for each, value in entries)
    for space, entries_of in found.items():
        for key, value in entries_of.items():
            yield space, key, _opened(value, log[-1].header)


def _opened(value: object, header: object) -> object:
    """What a process function keeps is packed, with the number of the layout that names it."""
    if not isinstance(value, bytes):
        return value
    try:
        layout, values = msgspec.msgpack.decode(value)
        return dict(zip(_layouts(header)[layout], values, strict=True))
    except (msgspec.DecodeError, TypeError, ValueError, IndexError):
        return value


def _layouts(header: object) -> list[list[str]]:
    """The lists of names in what is stored beside the keys."""
    if not isinstance(header, list | tuple):
        return []
    if header and all(isinstance(each, list) and all(isinstance(name, str) for name in each) for each in header):
        return list(header)
    return next((found for each in header if (found := _layouts(each))), [])


def _hashable(key: object) -> object:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


def _listed(key: object) -> object:
    return list(key) if isinstance(key, tuple) else key


def _results(
    last: CommitRecord, anchor: Anchor, pipeline: Pipeline, place: str, logs: dict[int, list[StateSnapshot]]
) -> State:
    # Sinks are not wanted, and might refuse what they have written.
    nodes = [replace(each, body=memory()) if isinstance(each.body, Sink) else each for each in pipeline.nodes()]
    plan = Plan.of(Graph.check(nodes), Options.of(name=last.job), memory())
    kept = [each for each in last.anchors if not each.is_sink]
    unit = plan.units[match(kept, plan, place)[anchor.unit]]
    spec = next(each for each in unit.ops if each.name == anchor.name)
    operator = Stage.of(spec).operator
    if not isinstance(operator, ReduceOperator):
        allowed = f"none: '{anchor.name}' is no aggregation over windows or over all time"
        raise InvalidOption(option="pipeline", given="…", allowed=allowed)
    assert isinstance(operator, StatefulOperator)
    if logs:
        restore_state(operator, *logs.values())
    return State(anchor.name, last.epoch, spec.output, [nested_dict(row) for row in operator.results()])
