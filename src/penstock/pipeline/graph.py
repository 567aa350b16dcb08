"""The typed graph of a pipeline: nodes with schemas on every port, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.checks import check_interface
from penstock.connectors.base import Sink, Source
from penstock.errors import InvalidGraph, PenstockError
from penstock.operators import MAIN, REST, ErrorPolicy, Operation, check_keys
from penstock.types import Schema


@dataclass(frozen=True, slots=True)
class Input:
    """One edge as its consumer sees it: a port of another node, dealt out by ``keys`` where there are any."""

    node: str
    port: str = MAIN
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """One step: a source (no input), a union (several inputs), a join (two), an operation or a sink (one input)."""

    name: str
    body: Source | Operation | Sink | None
    """None for a union."""
    inputs: tuple[Input, ...] = ()
    on_error: ErrorPolicy = ErrorPolicy.FAIL
    replicas: tuple[int, int] | None = None
    """The least and the most replicas of it, if the user has said so."""

    @property
    def kind(self) -> str:
        """One word for people."""
        return self.body.kind if self.body is not None else "merge"

    @property
    def source(self) -> Source | None:
        """The source that the step is, if it is one."""
        return self.body if isinstance(self.body, Source) else None

    @property
    def operation(self) -> Operation | None:
        """The operation that the step is, if it is one."""
        return self.body if isinstance(self.body, Operation) else None

    @property
    def sink(self) -> Sink | None:
        """The sink that the step is, if it is one."""
        return self.body if isinstance(self.body, Sink) else None


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order, with the schema of every port.

    Built by :meth:`check`, which refuses what cannot run.
    """

    nodes: tuple[Node, ...]
    ports: dict[tuple[str, str], Schema] = field(default_factory=dict)

    def node(self, name: str) -> Node:
        """Return the node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def schema(self, edge: Input) -> Schema:
        """Schema of what an edge carries."""
        return self.ports[edge.node, edge.port]

    def consumers(self, name: str, port: str) -> list[tuple[Node, Input]]:
        """Return who reads a port."""
        return [(n, e) for n in self.nodes for e in n.inputs if e.node == name and e.port == port]

    def without_declarations(self) -> Graph:
        """The graph without the steps that only declare event time: they change nothing."""
        declaring = (node for node in self.nodes if node.operation is not None and node.operation.declared_time)
        above = {node.name: node.inputs[0] for node in declaring}

        def passed(edge: Input) -> Input:
            while edge.node in above:
                edge = replace(above[edge.node], keys=edge.keys)
            return edge

        kept = (node for node in self.nodes if node.name not in above)
        return Graph(tuple(replace(node, inputs=tuple(map(passed, node.inputs))) for node in kept), self.ports)

    @staticmethod
    def check(nodes: Iterable[Node], sinks: Mapping[str, dict[str, object]] | None = None) -> Graph:
        """Order the nodes, infer all schemas and raise the first problem found.

        ``sinks`` holds the sinks' states of the run that is resumed, if one is.
        """
        ordered = _ordered(list(nodes))
        ports: dict[tuple[str, str], Schema] = {}
        for node in ordered:
            try:
                _bind(node, ports, sinks)
            except PenstockError as error:
                raise error.at(node.name) from None
        graph = Graph(tuple(ordered), ports)
        _check_connected(graph)
        return graph


def same_place(one: Sink, other: Sink) -> bool:
    """Whether two sinks are the same one, or write into the same directory."""
    if one.place is not None and other.place is not None:
        return _resolved(one.place) == _resolved(other.place)
    return one is other


def _resolved(place: Path | str) -> Path | str:
    return place.resolve() if isinstance(place, Path) else place


def _ordered(nodes: Sequence[Node]) -> list[Node]:
    by_name: dict[str, Node] = {}
    for node in nodes:
        if node.name in by_name and by_name[node.name] is not node:
            raise InvalidGraph(
                "two operations have this name.", operation=node.name, hint="Give one of them another name=…."
            )
        by_name[node.name] = node
    for node in by_name.values():
        for edge in node.inputs:
            if edge.node not in by_name:
                raise InvalidGraph(f"its input '{edge.node}' is not part of the pipeline.", operation=node.name)
    done: dict[str, Node] = {}
    visiting: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in visiting:
            cycle = " → ".join([*visiting[visiting.index(name) :], name])
            raise InvalidGraph(f"the graph has a cycle: {cycle}.", operation=name, hint="A stream cannot feed itself.")
        visiting.append(name)
        for edge in by_name[name].inputs:
            visit(edge.node)
        visiting.pop()
        done[name] = by_name[name]

    for name in by_name:
        visit(name)
    return list(done.values())


def _bind(node: Node, ports: dict[tuple[str, str], Schema], sinks: Mapping[str, dict[str, object]] | None) -> None:
    schemas = []
    for edge in node.inputs:
        schema = ports.get((edge.node, edge.port))
        if schema is None:
            raise InvalidGraph(f"'{edge.node}' has no output '{edge.port}'.", operation=node.name)
        if edge.keys:
            check_keys(schema, edge.keys)
        schemas.append(schema)
    if not schemas and node.source is None:
        raise InvalidGraph("it has no input.", operation=node.name)
    if node.source is not None or node.sink is not None:
        check_interface(node.body, node.kind)
    if node.body is None:
        found = {MAIN: _united(node, schemas)}
    else:
        unknown: dict[str, object] | None = {} if node.source is not None else None
        found = node.body.ports(schemas, sinks.get(node.name, unknown) if sinks is not None else None)
    ports.update({(node.name, port): schema for port, schema in found.items()})


def _united(node: Node, schemas: Sequence[Schema]) -> Schema:
    if any(schema != schemas[0] for schema in schemas):
        shown = "; ".join(f"{edge.node}: ({schema.ddl})" for edge, schema in zip(node.inputs, schemas, strict=True))
        raise InvalidGraph(
            f"only streams of one schema can be merged. {shown}.",
            operation=node.name,
            hint="Use select() first.",
        )
    return schemas[0]


def _check_connected(graph: Graph) -> None:
    if not any(node.sink for node in graph.nodes):
        raise InvalidGraph("the pipeline has no sink.", hint="End it with .to(…), for example .to(ps.console()).")
    read = {(edge.node, edge.port) for node in graph.nodes for edge in node.inputs}
    for node in graph.nodes:
        for port in node.body.required_ports if node.body is not None else (MAIN,):
            if (node.name, port) in read:
                continue
            if port == MAIN:
                raise InvalidGraph("its output leads nowhere.", operation=node.name, hint="End it with .to(…).")
            raise InvalidGraph(
                f"its branch '{port}' leads nowhere.",
                operation=node.name,
                hint=f"Send it to a sink, or leave it to '{REST}'.",
            )
