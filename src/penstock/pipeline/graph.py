"""The typed graph of a pipeline: nodes with schemas on every port, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.connectors.base import Sink, Source
from penstock.connectors.files import Files
from penstock.errors import InvalidGraph, PenstockError
from penstock.operators import MAIN, REST, Aggregation, ErrorPolicy, Join, Operation, Split, check_keys
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
    body: Source | Operation | Join | Sink | None
    """None for a union."""
    inputs: tuple[Input, ...] = ()
    on_error: ErrorPolicy = ErrorPolicy.FAIL

    @property
    def kind(self) -> str:
        """One word for people."""
        return self.body.kind if self.body is not None else "merge"


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
    if isinstance(one, Files) and isinstance(other, Files):
        return one.path.resolve() == other.path.resolve()
    return one is other


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
    body = node.body
    if isinstance(body, Source):
        body.check()
        ports[node.name, MAIN] = body.schema
        return
    if not schemas:
        raise InvalidGraph("it has no input.", operation=node.name)
    if body is None:
        if any(schema != schemas[0] for schema in schemas):
            shown = "; ".join(f"{edge.node}: ({schema.ddl})" for edge, schema in zip(node.inputs, schemas, strict=True))
            raise InvalidGraph(
                f"only streams of one schema can be merged. {shown}.",
                operation=node.name,
                hint="Use select() first.",
            )
        ports[node.name, MAIN] = schemas[0]
    elif isinstance(body, Sink):
        state = sinks.get(node.name) if sinks is not None else None
        if state is None:
            body.check(schemas[0])
        else:
            body.resume(state)
    elif isinstance(body, Join):
        if len(schemas) != 2:
            raise InvalidGraph(f"a join has two inputs, not {len(schemas)}.", operation=node.name)
        ports[node.name, MAIN] = body.bind_sides(schemas[0], schemas[1])
    else:
        ports[node.name, MAIN] = body.bind(schemas[0])
        for port, schema in body.side_ports(schemas[0]).items():
            ports[node.name, port] = schema


def _check_connected(graph: Graph) -> None:
    if not any(isinstance(node.body, Sink) for node in graph.nodes):
        raise InvalidGraph("the pipeline has no sink.", hint="End it with .to(…), for example .to(ps.console()).")
    read = {(edge.node, edge.port) for node in graph.nodes for edge in node.inputs}
    for node in graph.nodes:
        if isinstance(node.body, Sink):
            continue
        if isinstance(node.body, Split):
            for port, _ in node.body.branches:
                if (node.name, port) not in read:
                    raise InvalidGraph(
                        f"its branch '{port}' leads nowhere.",
                        operation=node.name,
                        hint=f"Send it to a sink, or leave it to '{REST}'.",
                    )
        elif (node.name, MAIN) not in read and not isinstance(node.body, Aggregation):
            raise InvalidGraph("its output leads nowhere.", operation=node.name, hint="End it with .to(…).")
