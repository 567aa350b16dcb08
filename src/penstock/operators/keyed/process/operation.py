"""A process function in a pipeline: what users see, and what runs of it behind the shuffle."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.durations import format_us
from penstock.operators.base import BatchKind, Expansion, Lateness, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.keyed.distinct import Timed
from penstock.operators.keyed.process.declared import Layout
from penstock.operators.keyed.process.function import Process
from penstock.operators.keyed.reduce import LATE
from penstock.operators.keyed.windows import check_time
from penstock.operators.keys import check_keys
from penstock.types import Schema


@dataclass(frozen=True)
class Processing(Operation):
    """Call a user's class for the records of each key; `ProcessState` runs of it, behind the shuffle."""

    function: Process
    keys: tuple[str, ...]
    output: Schema
    outputs: tuple[tuple[str, Schema], ...] = ()
    time: str | None = None
    by_time: bool = False
    """Whether records are taken in the order of event time, once it has passed them."""
    title: str = ""
    """What people know the function by, where that is not its class."""
    kind = "process"
    stateful = True
    is_pure = False

    def bind(self, schema: Schema) -> Schema:
        check_keys(schema, self.keys)
        if self.time is not None:
            check_time(schema, self.time, "the time column")
        return self.output

    def expand(self, schemas: Sequence[Schema], read: Collection[str]) -> Expansion:
        del schemas, read
        return Expansion((("timed", Timed(self.time)),), ProcessState(self), self.keys, self.keys)

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        late = {LATE: schema} if self.time is not None else {}
        return {**dict(self.outputs), **late}

    @property
    def required_ports(self) -> tuple[str, ...]:
        return () if self.outputs else super().required_ports

    @property
    def readers_of_time(self) -> tuple[tuple[str, Lateness], ...]:
        return ((self.time, Lateness()),) if self.time is not None else ()

    @property
    def layout(self) -> Layout:
        """What it keeps for each key."""
        return Layout.of(self.function)

    def describe(self) -> str:
        by = f"{self.title or type(self.function).__name__} by {', '.join(self.keys)}"
        ttls = [f"; states live up to {format_us(self.layout.ttls_us[-1])}"] if self.layout.ttls_us else []
        order = ", in its order" if self.by_time else ""
        return "".join([by, f"; event time {self.time}{order}" if self.time is not None else "", *ttls])


@dataclass(frozen=True)
class ProcessState(Operation):
    """After the shuffle: calls the handlers, owns states and timers; always on the record path."""

    of: Processing
    kind = "process"
    stateful = True
    follows_clock = True
    batch_kind = BatchKind.NONE
    is_pure = False

    def bind(self, schema: Schema) -> Schema:
        return self.of.bind(schema)

    def side_ports(self, schema: Schema) -> dict[str, Schema]:
        return self.of.side_ports(schema)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        from penstock.operators.keyed.process.operator import ProcessOperator  # which knows what it is made of

        return ProcessOperator(self.of, schema, errors)

    def describe(self) -> str:
        kept = ", ".join(f"{name} {text}" for name, text in self.of.layout.texts().items())
        return f"{self.of.describe()}{'; keeps ' + kept if kept else ''}"

    @property
    def state_signature(self) -> str:
        kept = self.of.layout.texts().items()
        parts = [f"by {', '.join(self.of.keys)}", *(f"{name}: {text}" for name, text in kept)]
        return f"process {'; '.join(parts)}"

    def takes_state_of(self, signature: str) -> bool:
        """States may be added, which begin with their defaults, and taken away; their types and the key must stay."""
        before, now = _signed(signature), _signed(self.state_signature)
        return before.pop("") == now[""] and all(now.get(name, text) == text for name, text in before.items())


def _signed(signature: str) -> dict[str, str]:
    head, *states = signature.split("; ")
    return {"": head, **{name: text for name, _, text in (each.partition(": ") for each in states)}}
