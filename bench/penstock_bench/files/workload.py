"""A workload file as the runner takes it: with the interface of `bench.workloads`, measured like the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Unpack

import penstock as ps
from penstock.connectors.base import Sink
from penstock.connectors.generator import Format, Generator
from penstock.connectors.rates import RateSchedule, Segment, as_schedule
from penstock.errors import InvalidOption
from penstock.types import Record
from penstock_bench.files import exact
from penstock_bench.files.build import build
from penstock_bench.files.exact import Expected
from penstock_bench.files.load import Description, load
from penstock_bench.files.messages import MESSAGE
from penstock_bench.workloads.base import Input, Rate, Workload, due_in


class Own(Enum):
    """In the place of a rate: those that the file says."""

    FILE = "file"


class Several(Generator):
    """The messages of several sources one after the other, to be made again; a job reads the sources themselves."""

    def __init__(self, sources: list[Generator]) -> None:
        totals = [source.total for source in sources]
        total = None if None in totals else sum(filter(None, totals))
        super().__init__({}, None, MESSAGE, Format.COLUMNS, seed=0, total=total, partitions=1)
        self._sources = sources

    def records(self, first: int, count: int, start_us: int) -> list[Record]:
        rows: list[Record] = []
        for source in self._sources:
            if source.total is None:
                raise InvalidOption(option="total", given=None, allowed="a number, as there are several sources")
            if count > 0 and first < source.total:
                rows += source.records(first, min(count, source.total - first), start_us)
                count -= source.total - first
            first = max(first - source.total, 0)
        return rows


@dataclass(frozen=True)
class FileWorkload(Workload[Expected]):
    """A workload that a file describes; :func:`file_workload` reads it.

    The rates of several sources keep their proportions: a number given for the rate is what they have together.
    """

    description: Description = field(kw_only=True)

    def sources(self, rate: Rate | Own = Own.FILE, **input: Unpack[Input]) -> dict[str, Generator]:
        """Build the generators of all sources, by name; the parameters are those of :meth:`source`."""
        plans, total, seconds = self.description.sources, input.get("total"), input.get("seconds")
        together_eps = sum(plan.rate_eps for plan in plans.values())
        partitions, seed = input.get("partitions"), input.get("seed", 0)
        made: dict[str, Generator] = {}
        for i, (name, plan) in enumerate(plans.items(), 1):
            share = plan.rate_eps / together_eps
            own = plan.schedule if isinstance(rate, Own) else _scaled(rate, share)
            amount = None if total is None else round(total * share)
            if total is not None and i == len(plans):
                amount = total - sum(each.total or 0 for each in made.values())
            if seconds is not None:
                amount = due_in(own, seconds, total)
            made[name] = plan.generator(own, total=amount, partitions=partitions, seed=seed)
        return made

    def source(self, rate: Rate | Own = Own.FILE, **input: Unpack[Input]) -> Generator:
        """Build the input, to be made again; a seed comes on top of the file's, for what sources draw."""
        made = list(self.sources(rate, **input).values())
        return made[0] if len(made) == 1 else Several(made)

    def pipeline(self, rate: Rate | Own, sink: Sink, **input: Unpack[Input]) -> ps.Pipeline:
        """Build the pipeline to ``sink``; where the file has several sinks, the column ``sink`` names them there."""
        sources = self.sources(rate, **input)
        return self.result({name: ps.stream(name, source) for name, source in sources.items()}).to(sink)

    def result(self, sources: dict[str, ps.Stream]) -> ps.Stream:
        """Return the stream that goes into the sink, from the streams of all sources by name."""
        streams = build(self.description, {name: sources[name] for name in self.description.sources})
        if len(streams) == 1:
            return next(iter(streams.values()))
        named = [each.with_columns(sink=ps.lit(name), name=f"{name}:sink") for name, each in streams.items()]
        return named[0].merge(*named[1:], name=":sinks")


def file_workload(path: str | Path) -> FileWorkload:
    """Read a workload file; `WorkloadRefused` has every problem with it."""
    description = load(path)
    workload = FileWorkload(
        name=description.name,
        title=description.title,
        fields={},
        format="columns",
        build=lambda stream: workload.result({next(iter(description.sources)): stream}),
        expected=partial(exact.expected, description),
        compare=exact.compare,
        description=description,
    )
    return workload


def _scaled(rate: Rate, share: float) -> RateSchedule | None:
    schedule = as_schedule(rate)
    if schedule is None or share == 1:
        return schedule
    segments = tuple(Segment(each.duration_us, each.rate_eps * share) for each in schedule.segments)
    return RateSchedule(segments, schedule.repeat_from)
