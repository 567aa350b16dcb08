"""The verb for alternatives: several ways to compute the same columns, of which one is active."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.durations import parse_us
from penstock.errors import InvalidOption, PenstockError, TypeMismatch, nearest
from penstock.operators import MAIN, ErrorPolicy, Operation, Processing
from penstock.operators.alternatives import Alternatives
from penstock.operators.keyed.process import ProcessState
from penstock.operators.members import Alternative
from penstock.operators.members import Step as Part
from penstock.operators.stateless.columns import Split
from penstock.operators.stateless.watermark import Watermark
from penstock.pipeline.steps import Step, make_step
from penstock.pipeline.streams.base import Builder
from penstock.types import Field, Schema

if TYPE_CHECKING:
    from penstock.pipeline.streams.stream import Stream

AUTO = "auto"
"""In place of an alternative's name: the job chooses."""
ALTERNATIVES_MAX = 100


class AlternativeVerbs(Builder):
    """What a stream can do in more than one way."""

    def alternatives(
        self,
        name: str,
        *,
        active: str | None = None,
        prefer: Sequence[str] | None = None,
        latency: str | float | None = None,
        falls_back_on: type[BaseException] | Sequence[type[BaseException]] = OSError,
        convert: Mapping[tuple[str, str], Callable[[Any, Any], Any]] | None = None,
        warm_up: str | float | None = None,
        **alternatives: Callable[[Any], Stream],
    ) -> Stream:
        """Compute the same columns in one of several ways, which can be exchanged while the job runs.

        Only the active alternative runs. ``job.use(name, "fast")`` or ``penstock use JOB name fast`` exchanges it:
        nothing is lost, doubled or reordered.

        Parameters
        ----------
        name : str
            Name of the operation.
        active : str
            The alternative that the job begins with. Default: the first of ``prefer``, else the first one given.
        prefer : list of str
            Names, the best first. When one fails, the next one that works takes over, and the failed one is tried
            again later.
        latency : str or number
            With ``prefer``: the job uses the best alternative as long as its records leave the operation within this
            time of being due, else the next one.
        falls_back_on : exception class, or several
            What counts as a failure of the alternative, such as a service that does not answer, and not of the record.
        convert : dict
            For alternatives whose state is of another type: from ``("exact", "fast")`` to a function that is given a
            key and its accumulators and returns those of the other aggregation; for process functions, a key and its
            states by name.
        warm_up : str or number
            How long an alternative that cannot be given the state is fed before it takes over. Default: as long as its
            windows need.
        **alternatives : functions
            From the stream to a stream; all results have the same schema.

        Examples
        --------
        >>> events.alternatives(                                                   # doctest: +SKIP
        ...     "score",
        ...     exact=lambda s: s.map(deep, schema="id bigint, score double"),
        ...     fast=lambda s: s.map(linear, schema="id bigint, score double"),
        ...     active="exact",
        ... )
        """
        if len(alternatives) < 2 or len(alternatives) > ALTERNATIVES_MAX:
            allowed = f"2 to {ALTERNATIVES_MAX}, such as exact=lambda s: s.map(…)"
            raise InvalidOption(option="alternatives", given=list(alternatives), allowed=allowed, operation=name)
        made = {label: _Made(self, name, label, build) for label, build in alternatives.items()}
        output = _check_alike(name, made)
        keys = _shared_keys(name, made, self._keys)
        known, order = list(made), tuple(prefer or ())
        first = active if active is not None else order[0] if order else known[0]
        for option, given in [("active", first), *(("prefer", each) for each in order)]:
            if given not in known:
                hint = nearest(str(given), known)
                raise InvalidOption(option=option, given=given, allowed=", ".join(known), operation=name, hint=hint)
        if latency is not None and not order:
            raise InvalidOption(option="latency", given=latency, allowed="together with prefer", operation=name)
        operation = Alternatives(
            tuple(each.alternative for each in made.values()),
            first,
            output,
            keys,
            order,
            None if latency is None else parse_us(latency, option="latency"),
            _errors(name, falls_back_on),
            dict(convert or {}),
            None if warm_up is None else parse_us(warm_up, option="warm_up", allow_zero=True),
        )
        _check_state(name, operation)
        policies = {step.on_error for each in operation.alternatives for step in each.steps}
        policy = ErrorPolicy.DEAD_LETTER if ErrorPolicy.DEAD_LETTER in policies else ErrorPolicy.FAIL
        if len(policies) == 1:
            policy = policies.pop()
        base = self._unkeyed if operation.stateful else self._stream(self._from, self._port, self.schema, keys)
        step = make_step(operation, (base._edge,), name, name, policy.value)
        return self._stream(step, MAIN, operation.output)


class _Made:
    """One alternative as its function has built it: the steps from the stream to its result."""

    def __init__(self, base: Builder, name: str, label: str, build: Callable[[Any], Stream]) -> None:
        self.label = f"{name}.{label}"
        if not label.isidentifier() or label == AUTO:
            allowed = f"a Python identifier other than '{AUTO}'"
            raise InvalidOption(option="alternative", given=label, allowed=allowed, operation=name)
        if not callable(build):
            raise TypeMismatch(
                what=f"{build!r} is no function of a stream.", operation=self.label, hint="Write lambda s: s.map(…)."
            )
        try:
            self.result = build(base)
        except PenstockError as error:
            error.operation = f"{self.label}.{error.operation}" if error.operation else self.label
            raise
        if not isinstance(self.result, Builder):
            raise TypeMismatch(what=f"it gives {self.result!r}, and no stream.", operation=self.label)
        self.key_sets: list[tuple[str, ...]] = []
        """Keys, each as a column of the stream that all alternatives are given."""
        self.times: list[str] = []
        """Time columns, likewise."""
        self.alternative = Alternative(label, tuple(self._parts(base, self._walked(base))))

    def _walked(self, base: Builder) -> list[Step]:
        """The steps from the base to the result, in their order."""
        if self.result._port != MAIN and self.result._from is not base._from:
            raise self._refusal("ends in a side output", "Only the main output of an alternative goes on.")
        found: list[Step] = []
        step = self.result._from
        while step is not base._from:
            if len(step.inputs) != 1 or step.node.operation is None:
                raise self._refusal(
                    f"has '{step.node.name}' ({step.node.kind}), which is not made of the one stream it is given",
                    "Merge and join before or behind the alternatives.",
                )
            if isinstance(step.node.operation, Split | Watermark | Alternatives):
                raise self._refusal(
                    f"has '{step.node.name}' ({step.node.kind}), which cannot be exchanged",
                    "Put it before or behind the alternatives.",
                )
            if isinstance(step.node.operation, Processing) and step.node.operation.outputs:
                raise self._refusal(f"has side outputs with '{step.node.name}'", "Only main outputs can be read.")
            if step.node.replicas is not None:
                raise self._refusal(f"has replicas with '{step.node.name}'", "Leave replicas= out.")
            if step.inputs[0] is not base._from and step.node.inputs[0].port != MAIN:
                raise self._refusal(f"reads a side output with '{step.node.name}'", "Only main outputs can be read.")
            found.append(step)
            step = step.inputs[0]
        return found[::-1]

    def _refusal(self, what: str, hint: str) -> TypeMismatch:
        return TypeMismatch(what=f"the alternative {what}.", operation=self.label, hint=hint)

    def _parts(self, base: Builder, steps: list[Step]) -> list[Part]:
        parts: list[Part] = []
        schema, names, above = base.schema, set[str](), list[Part]()
        for step in steps:
            node, operation = step.node, step.node.operation
            assert operation is not None
            name, n = node.name, 1
            while name in names:
                n += 1
                name = f"{node.name}-{n}"
            names.add(name)
            label = f"{self.label}.{name}"
            if node.inputs[0].keys:
                self.key_sets.append(self._columns(label, node.inputs[0].keys, above, "key"))
            expansion = operation.expand([schema], ())
            output = operation.bind(schema)
            if expansion is None:
                parts.append(Part(label, operation, schema, output, node.on_error))
            else:
                self._check_place(label, parts, expansion.behind)
                self.key_sets.append(self._columns(label, expansion.user_keys, above, "key"))
                for column, _ in operation.readers_of_time:
                    self.times += self._columns(label, (column,), above, "time")
                ((_, before),) = expansion.before
                between = before.bind(schema)
                parts.append(Part(label, before, schema, between, node.on_error))
                parts.append(Part(label, expansion.behind, between, output, node.on_error))
            above.append(Part(label, operation, schema, output))
            schema = output
        self._check_behind(parts)
        calls = [part.name for part in parts if part.operation.waits]
        if len(calls) > 1 or (calls and any(part.operation.stateful for part in parts)):
            raise TypeMismatch(
                what="it calls functions twice, or calls one and keeps state.",
                operation=calls[-1],
                hint="Put one of the operations before or behind the alternatives.",
            )
        return parts

    def _columns(self, label: str, columns: tuple[str, ...], above: list[Part], what: str) -> tuple[str, ...]:
        found = []
        for column in columns:
            source = Alternative("", tuple(above)).column_of(column)
            if source != column:
                raise TypeMismatch(
                    what=f"its {what} '{column}' is made inside the alternative.",
                    operation=label,
                    hint="All alternatives share their keys and event time: compute them before the alternatives.",
                )
            found.append(source)
        return tuple(found)

    def _check_place(self, label: str, parts: list[Part], behind: Operation) -> None:
        if not behind.stateful:
            return
        if any(part.operation.stateful for part in parts):
            raise TypeMismatch(
                what="it is the second operation with state in one alternative.",
                operation=label,
                hint="Put one of them before or behind the alternatives.",
            )

    def _check_behind(self, parts: list[Part]) -> None:
        states = [index for index, part in enumerate(parts) if part.operation.stateful]
        for part in parts[states[0] + 1 :] if states else ():
            if part.on_error is not ErrorPolicy.FAIL:
                raise InvalidOption(
                    option="on_error",
                    given=part.on_error.value,
                    allowed="fail, behind an operation with state in an alternative",
                    operation=part.name,
                    hint=" Put the operation behind the alternatives.",
                )


def _check_alike(name: str, made: Mapping[str, _Made]) -> Schema:
    """Refuse alternatives whose results differ, or of which only some keep state; return the schema of all results."""
    first, *others = made.values()
    output = _nullable(first.result.schema)
    for other in others:
        if _nullable(other.result.schema) != output:
            raise TypeMismatch(
                what=f"{first.label} gives ({first.result.schema.ddl}), "
                f"{other.label} gives ({other.result.schema.ddl}).",
                operation=name,
                hint="Alternatives have one schema: use select() at the end of one.",
            )
    with_state = [each.alternative.state is not None for each in made.values()]
    if any(with_state) and not all(with_state):
        raise TypeMismatch(
            what="some of the alternatives keep state and some do not.",
            operation=name,
            hint="What a window holds would be lost in between: give them all a window, or none.",
        )
    times = {column for each in made.values() for column in each.times}
    if len(times) > 1:
        raise TypeMismatch(
            what=f"the alternatives follow different event times: {', '.join(sorted(times))}.", operation=name
        )
    columns = zip(*(each.result.schema.fields for each in made.values()), strict=True)
    return Schema(tuple(Field(of[0].name, of[0].type, any(each.nullable for each in of)) for of in columns))


def _nullable(schema: Schema) -> Schema:
    return Schema(tuple(Field(each.name, each.type) for each in schema.fields))


def _shared_keys(name: str, made: Mapping[str, _Made], given: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of all alternatives that have any."""
    found = {keys: each.label for each in made.values() for keys in each.key_sets}
    if len(found) > 1:
        told = "; ".join(f"{label} by {', '.join(keys) or 'nothing'}" for keys, label in found.items())
        raise TypeMismatch(
            what=f"the alternatives are dealt out by different keys: {told}.",
            operation=name,
            hint="Alternatives share their keys: use key_by() before them.",
        )
    return next(iter(found)) if found else given


def _errors(name: str, given: object) -> tuple[type[BaseException], ...]:
    found = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    if not all(isinstance(each, type) and issubclass(each, BaseException) for each in found):
        allowed = "exception classes, such as (ConnectionError, TimeoutError)"
        raise InvalidOption(option="falls_back_on", given=given, allowed=allowed, operation=name)
    return found


def _check_state(name: str, operation: Alternatives) -> None:
    """Refuse what could never be exchanged: state that can neither be given nor built up."""
    known = operation.names
    for pair in operation.convert:
        if not (isinstance(pair, tuple) and len(pair) == 2 and set(pair) <= set(known)):
            allowed = f"pairs of {', '.join(known)}"
            raise InvalidOption(option="convert", given=pair, allowed=allowed, operation=name)
        for each in pair:
            state = operation.alternative(each).state
            if state is None or state.operation.kind not in ("reduce", "process"):
                what = f"'{each}' keeps no state that can be converted: that of aggregations and process functions can."
                raise TypeMismatch(what=what, operation=name)
        if len({operation.alternative(each).state.operation.kind for each in pair}) > 1:  # type: ignore[union-attr]
            what = f"{pair[0]} and {pair[1]}: a function cannot make the state of a process function of an aggregate."
            raise TypeMismatch(what=what, operation=name, hint='Give warm_up="10s", if an approximate state will do.')
    kept = [each.state.operation for each in operation.alternatives if each.state is not None]
    if len({each.of.by_time for each in kept if isinstance(each, ProcessState)}) > 1:
        raise TypeMismatch(
            what="some of the process functions take records in the order of time, and some do not.",
            operation=name,
            hint='Give all of them order="time", or none.',
        )
    if not operation.stateful or operation.warm_up_us is not None:
        return
    for one in operation.alternatives:
        for other in operation.alternatives:
            handed = one.state_signature == other.state_signature or (one.name, other.name) in operation.convert
            if not handed and other.remembers_us is None:
                raise InvalidOption(
                    option="convert",
                    given=None,
                    allowed=f"a function for ('{one.name}', '{other.name}')",
                    operation=name,
                    hint=" Their states are of different types and never forget a record, so neither can be warmed up "
                    'by itself. Or say how long that takes, warm_up="10s", if an approximate state will do.',
                )
