"""From a workload file to Penstock's streams, one transformation after the other; `workload` calls it.

The numbers are those of `program`, which every other engine is told too."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import functions as F
from penstock.operators import Function, Window, session, sliding, tumbling
from penstock.pipeline.streams.stream import Stream
from penstock.types import Record
from penstock_bench.files.layout import output_names
from penstock_bench.files.load import Description
from penstock_bench.files.messages import MESSAGE
from penstock_bench.files.program import Burner, specification
from penstock_bench.foreign.programs.chance import PRIME, combine, draw, relabel

_Message = MESSAGE.record_type


def as_operation(forms: Modify | Burner) -> Function:
    made = ps.op(MESSAGE, pure=True)(forms)
    made.batch(forms.batch)
    return made


def resized(ratio: float) -> Any:
    """The value as a column, cut or repeated to ``floor(length · ratio)`` letters."""
    value = ps.col("value")
    if ratio == 1:
        return value
    made = F.substring(F.repeat(value, ceil(ratio)), 1, F.floor(F.length(value) * ratio).cast("int"))
    return ps.coalesce(made, "")  # never null, which the length's type does not say


class Modify:
    """Resizes messages and repeats each so many times, and once more with a probability: a step of `modify_step`."""

    __name__ = "modify"

    def __init__(self, step: Mapping[str, Any]) -> None:
        self._ratio: float = step["ratio"]
        self._times: int = ceil(self._ratio)
        self._draw, self._limit = step["draw"], step["below"]
        self._whole, self._copies = step["copies"], step["relabels"]

    def value(self, value: str) -> str:
        return (value * self._times)[: int(len(value) * self._ratio)]

    def __call__(self, record: Any) -> list[Record]:
        value = self.value(record.value)
        count = self._whole + (draw(self._draw, record.id) < self._limit)
        return [_Message(record.key, value, record.time, relabel(copy, record.id)) for copy in self._copies[:count]]

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = batch.column("id").to_numpy()
        counts = self._whole + (draw(self._draw, ids) < self._limit)
        rows = np.repeat(np.arange(batch.num_rows), counts)
        copies = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
        values = batch.column("value")
        if self._ratio != 1:
            values = pa.array(map(self.value, values.to_pylist()), pa.string())
        whole = [batch.column("key"), values, batch.column("time"), pa.array(ids)]
        taken = pa.RecordBatch.from_arrays(whole, schema=MESSAGE.arrow).take(pa.array(rows))
        new_ids = pa.array(relabel(np.array(self._copies)[copies].T, ids[rows]))
        return pa.RecordBatch.from_arrays([*taken.columns[:3], new_ids], schema=MESSAGE.arrow)


_JOIN_SLACK = 3
"""All pairs of a join come up to this many times to live after the newest one; a window over them has to wait."""
Step = Mapping[str, Any]


def build(description: Description, sources: Mapping[str, Stream]) -> dict[str, Stream]:
    """Return the streams that are the result, by the names of the sinks."""
    made = {(name, 0): stream for name, stream in sources.items()}
    told = specification(description)
    late_us: dict[str, int] = {}
    for step in told["steps"]:
        # How far out of order joins upstream may have made what is read here.
        read_us = max((late_us.get(node, 0) for node, _ in step["inputs"]), default=0)
        late_us[step["name"]] = _late_us(step, read_us)
        read = _burdened(step, [made[node, output] for node, output in step["inputs"]])
        made |= {(step["name"], i): stream for i, stream in enumerate(_made(description, step, read, read_us))}
    return {name: made[node, output] for name, (node, output) in told["sinks"].items()}


def _late_us(step: Step, read_us: int) -> int:
    if step["do"] == "join" and step["match"] == "all":
        return read_us + _JOIN_SLACK * int(step["ttl_us"])
    # A window's results come in order, and so do pairs where each message is in one.
    return 0 if "combine" in step else read_us


def _made(description: Description, step: Step, read: list[Stream], late_us: int) -> list[Stream]:
    name, first = step["name"], read[0]
    match step["do"]:
        case "filter":
            return [first.filter(draw(step["draw"], ps.col("id")) >= step["below"], name=name)]
        case "split":
            outputs = output_names(name, description.transformations[name])
            return [_copy(first, step, i, output) for i, output in enumerate(outputs)]
        case "modify" if step["copies"] == 1 and not step["below"]:
            return [first.with_columns(value=resized(step["ratio"]), name=name)]
        case "modify":
            return [first.flat_map(as_operation(Modify(step)), name=name)]
        case "merge":
            return [first.merge(*read[1:], name=name)]
        case "join":
            return [_joined(step, read, late_us)]
    return [_counted(step, first, description.layout.timing[name].lateness_us + late_us)]


def _burdened(step: Step, read: list[Stream]) -> list[Stream]:
    if "load" not in step:
        return read
    burner, label = as_operation(Burner(**step["load"])), f"{step['name']}:load"
    several = len(read) > 1
    return [each.map(burner, name=f"{label}-{i}" if several else label) for i, each in enumerate(read, 1)]


def _copy(read: Stream, step: Step, i: int, output: str) -> Stream:
    if step["ratio"] == 1 and i == 0:
        return read  # The first copy of a message is the message itself.
    id_ = relabel(step["relabels"][i], ps.col("id"))
    return read.with_columns(value=resized(step["ratio"]), id=id_, name=output)


def _joined(step: Step, read: list[Stream], late_us: int) -> Stream:
    name = step["name"]
    right = read[1].select("key", "time", right_value=ps.col("value"), right_id=ps.col("id"), name=f"{name}:right")
    within, lateness = f"{step['ttl_us']}us", f"{late_us}us"
    pairs = read[0].join(right, on="key", within=within, time="time", lateness=lateness, match=step["match"], name=name)
    # A pair has both values and the later of the two times.
    both = ps.functions.concat(ps.col("value"), ps.col("right_value"))
    id_ = combine(step["combine"], ps.col("id"), ps.col("right_id"))
    return pairs.select("key", value=both, time=ps.col("time"), id=id_, name=f"{name}:pair")


def _counted(step: Step, read: Stream, late_us: int) -> Stream:
    name, is_session, slide_us, lateness = step["name"], "gap_us" in step, step.get("slide_us", 1), f"{late_us}us"
    if is_session:
        window: Window = session(f"{step['gap_us']}us", on="time", lateness=lateness)
    elif slide_us == step["size_us"]:
        window = tumbling(f"{slide_us}us", on="time", lateness=lateness)
    else:
        window = sliding(f"{step['size_us']}us", slide=f"{slide_us}us", on="time", lateness=lateness)
    counts = read.key_by("key").window(window).aggregate(name=name, count=ps.agg.count(), id=ps.agg.min("id"))
    # A message at the very end of a session would still be in it, one at the end of another window would not.
    last = ps.expr(f"timestamp_micros(unix_micros(window_end) - {0 if is_session else 1})")
    number = ps.expr(f"unix_micros(window_start) div {slide_us}") % PRIME
    id_ = combine(step["combine"], ps.col("id"), number)
    # A window has a count and an id: said so that its messages are of the type of all others.
    count, id_ = ps.coalesce(ps.col("count").cast("string"), ""), ps.coalesce(id_, 0)
    return counts.select("key", value=count, time=last, id=id_, name=f"{name}:count")
