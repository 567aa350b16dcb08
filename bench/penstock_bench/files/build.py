"""From a workload file to Penstock's streams, one transformation after the other; `workload` calls it."""

from __future__ import annotations

from collections.abc import Mapping

import penstock as ps
from penstock.operators import Pairing, Window, session, sliding, tumbling
from penstock.pipeline.streams.stream import Stream
from penstock_bench.files.chance import combining, drawing, limit, relabelling
from penstock_bench.files.layout import Place, output_names
from penstock_bench.files.load import Description
from penstock_bench.files.loads import Burner, costly, costs
from penstock_bench.files.model import Filter, Join, Loads, Merge, Modify, Split
from penstock_bench.files.operations import Modify as Modifying
from penstock_bench.files.operations import as_operation, resized
from penstock_bench.foreign.programs.chance import PRIME, combine, draw, relabel

_JOIN_SLACK = 3
"""All pairs of a join come up to this many times to live after the newest one; a window over them has to wait."""


def build(description: Description, sources: Mapping[str, Stream]) -> dict[str, Stream]:
    """Return the streams that are the result, by the names of the sinks."""
    made = {Place(name): stream for name, stream in sources.items()}
    builder = _Builder(description)
    for name in description.layout.order:
        read = [made[place] for place in description.layout.inputs[name]]
        for i, stream in enumerate(builder.add(name, read)):
            made[Place(name, i)] = stream
    return {name: made[place] for name, place in description.layout.sinks.items()}


class _Builder:
    def __init__(self, description: Description) -> None:
        self._description = description
        self._layout = description.layout
        self._seed = description.seed

    def add(self, name: str, read: list[Stream]) -> list[Stream]:
        """Return the outputs of a transformation of these streams."""
        transformation = self._description.transformations[name]
        read = self._burdened(name, transformation.params, read)
        match transformation:
            case Filter(params=params):
                return [read[0].filter(draw(drawing(self._seed, name), ps.col("id")) >= limit(params.p), name=name)]
            case Split(params=params):
                names = output_names(name, transformation)
                return [self._copy(read[0], output, name, i, params.ratio) for i, output in enumerate(names)]
            case Modify(params=params):
                return [self._modified(read[0], name, params.size_ratio, params.rate_ratio)]
            case Merge():
                return [read[0].merge(*read[1:], name=name)]
            case Join(params=params):
                return [self._joined(read, name, params.match)]
        return [self._counted(read[0], name)]

    def _burdened(self, name: str, loads: Loads, read: list[Stream]) -> list[Stream]:
        if not costly(loads):
            return read
        burner = Burner(**costs(loads, self._layout.rates_eps[name][0]))  # type: ignore[arg-type]
        labels = [f"{name}:load"] if len(read) == 1 else [f"{name}:load-{i}" for i in range(1, len(read) + 1)]
        return [each.map(as_operation(burner), name=label) for each, label in zip(read, labels, strict=True)]

    def _copy(self, read: Stream, output: str, name: str, i: int, ratio: float) -> Stream:
        if ratio == 1 and i == 0:
            return read  # The first copy of a message is the message itself.
        id_ = relabel(relabelling(self._seed, name, i), ps.col("id"))
        return read.with_columns(value=resized(ratio), id=id_, name=output)

    def _modified(self, read: Stream, name: str, size_ratio: float, rate_ratio: float) -> Stream:
        if rate_ratio != 1:
            return read.flat_map(as_operation(Modifying(self._seed, name, size_ratio, rate_ratio)), name=name)
        return read.with_columns(value=resized(size_ratio), name=name)

    def _joined(self, read: list[Stream], name: str, match: Pairing) -> Stream:
        right = read[1].select("key", "time", right_value=ps.col("value"), right_id=ps.col("id"), name=f"{name}:right")
        pairs = read[0].join(
            right,
            on="key",
            within=f"{self._layout.ttl_us(name)}us",
            time="time",
            lateness=f"{self._slack_us(name)}us",
            match=match.value,
            name=name,
        )
        # A pair has both values and the later of the two times.
        both = ps.functions.concat(ps.col("value"), ps.col("right_value"))
        id_ = combine(combining(self._seed, name), ps.col("id"), ps.col("right_id"))
        return pairs.select("key", value=both, time=ps.col("time"), id=id_, name=f"{name}:pair")

    def _counted(self, read: Stream, name: str) -> Stream:
        timing = self._layout.window(name)
        size, lateness = f"{timing.size_us}us", f"{timing.lateness_us + self._slack_us(name)}us"
        if timing.is_session:
            window: Window = session(size, on="time", lateness=lateness)
        elif timing.slide_us == timing.size_us:
            window = tumbling(size, on="time", lateness=lateness)
        else:
            window = sliding(size, slide=f"{timing.slide_us}us", on="time", lateness=lateness)
        grouped = read.key_by("key").window(window)
        counts = grouped.aggregate(name=name, count=ps.agg.count(), id=ps.agg.min("id"))
        # A message at the very end of a session would still be in it, one at the end of another window would not.
        last = ps.expr(f"timestamp_micros(unix_micros(window_end) - {0 if timing.is_session else 1})")
        number = ps.expr(f"unix_micros(window_start) div {timing.slide_us}") % PRIME
        id_ = combine(combining(self._seed, name), ps.col("id"), number)
        # A window has a count and an id: said so that its messages are of the type of all others.
        count, id_ = ps.coalesce(ps.col("count").cast("string"), ""), ps.coalesce(id_, 0)
        return counts.select("key", value=count, time=last, id=id_, name=f"{name}:count")

    def _slack_us(self, name: str) -> int:
        """How far out of order joins upstream may make what a transformation reads."""
        slack_us: dict[str, int] = {}
        for each in self._layout.order:
            read_us = max((slack_us.get(place.node, 0) for place in self._layout.inputs[each]), default=0)
            if each == name:
                return read_us
            transformation = self._description.transformations[each]
            if isinstance(transformation, Join) and transformation.params.match is Pairing.ALL:
                slack_us[each] = read_us + _JOIN_SLACK * self._layout.ttl_us(each)
            elif each in self._layout.timing:
                # A window's results come in order, and so do pairs where each message is in one.
                slack_us[each] = 0
            else:
                slack_us[each] = read_us
        return 0
