"""A complete pipeline: the sinks that streams end in, and all that is before them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connectors.base import Sink
from penstock.errors import InvalidGraph
from penstock.pipeline.graph import Graph, Node, same_place
from penstock.pipeline.steps import Step, settle


class Pipeline:
    """A complete pipeline, from sources to one or more sinks; made by :meth:`Stream.to`.

    Give it to :func:`penstock.run` or :func:`penstock.start`; several may share sources and run as one job.
    ``first + second`` is one pipeline with the sinks of both.
    """

    def __init__(self, sinks: tuple[Step, ...], dead_letters: Sink | None = None) -> None:
        self._sinks = sinks
        self.dead_letters = dead_letters

    def __add__(self, other: Pipeline) -> Pipeline:
        if self.dead_letters and other.dead_letters and not same_place(self.dead_letters, other.dead_letters):
            raise InvalidGraph(
                "the pipelines of one job have different sinks for dead letters.",
                hint="Give them the same one: the bad records of a job go to one place, with their operation's name.",
            )
        return Pipeline(self._sinks + other._sinks, self.dead_letters or other.dead_letters)

    def __repr__(self) -> str:
        return f"<Pipeline {' | '.join(node.name for node in self.nodes())}>"

    def nodes(self) -> list[Node]:
        """Return the steps with their final names, not checked yet."""
        return settle(self._sinks)

    def graph(self, sinks: Mapping[str, dict[str, object]] | None = None) -> Graph:
        """Return the checked graph; ``sinks`` are the sinks' states of the run that is resumed, if one is."""
        return Graph.check(self.nodes(), sinks)
