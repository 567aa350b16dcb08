"""The builder users write pipelines with: every call returns a new Stream and adds one node."""

from __future__ import annotations

from penstock.connectors.base import End, Sink, Source
from penstock.errors import TypeMismatch
from penstock.operators import MAIN
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.steps import make_step
from penstock.pipeline.streams.columns import ColumnVerbs
from penstock.pipeline.streams.combining import CombiningVerbs
from penstock.pipeline.streams.functions import FunctionVerbs
from penstock.pipeline.streams.keying import KeyingVerbs


def stream(name: str, source: Source | End) -> Stream:
    """Begin a pipeline at a source.

    Parameters
    ----------
    name : str
        Name of the source operation.
    source : Source
        Such as ``ps.generator(…)`` or ``ps.json_files(…)``.
    """
    source = source.source() if isinstance(source, End) else source
    if not isinstance(source, Source):
        raise TypeMismatch(
            what=f"{source!r} is not a source.",
            operation=name,
            hint="Use ps.generator(…), ps.records(…) or ps.json_files(…).",
        )
    return Stream(make_step(source, (), name, name), MAIN, source.schema)


class Stream(ColumnVerbs, FunctionVerbs, CombiningVerbs, KeyingVerbs):
    """Records of one schema, flowing. Immutable: every method returns a new stream."""

    def to(self, sink: Sink | End, *, name: str | None = None, dead_letters: Sink | End | None = None) -> Pipeline:
        """End the stream in a sink; ``dead_letters`` takes the bad records of operations with that policy."""
        sink = sink.sink() if isinstance(sink, End) else sink
        dead_letters = dead_letters.sink() if isinstance(dead_letters, End) else dead_letters
        if not isinstance(sink, Sink):
            raise TypeMismatch(
                what=f"{sink!r} is not a sink.",
                operation=name or "sink",
                hint="Use ps.files(…), ps.console() or ps.memory().",
            )
        return Pipeline((make_step(sink, (self._edge,), name, f"to_{sink.kind}"),), dead_letters)
