"""Whether the record form and the batch form of an operation agree, on rows that are given or drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from penstock.connectors import memory, records
from penstock.errors import InvalidOption, PenstockError, TypeMismatch
from penstock.operators import ErrorPolicy, Operation
from penstock.operators.base import BatchResult, Operator, Result
from penstock.operators.errors import Errors
from penstock.operators.stateless.functions import Apply, Function
from penstock.pipeline.graph import Graph
from penstock.pipeline.streams.stream import Stream, stream
from penstock.testing.rows import difference
from penstock.types import DataType, Record, Schema, TypeKind, nested_dict

ROWS_MAX = 6
_NUMBERS = (0, 1, -1, 2, 7, 127, -128, 300, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
_DOUBLES = (0.0, -0.0, 0.5, -2.5, 1e-5, 1234567.891, 1e300, float("inf"), float("-inf"), float("nan"))
_TIMES_US = (0, -1, 1_774_747_815_123_456, -62_135_596_800_000_000, 253_402_300_799_999_999)

Verb = Callable[[Stream], Stream]


def equal_forms(
    op: Function | Operation | Verb,
    strategy: object = None,
    *,
    schema: str | Schema,
    flat: bool = False,
    examples: int = 100,
) -> None:
    """Check that both forms of an operation give the same records and fail on the same ones.

    The batch form of a function must handle all records that its record form can handle.

    Parameters
    ----------
    op : Function, or a function of a stream
        What ``@ps.op`` has made, with its ``@fn.batch``; or such as ``lambda s: s.filter("n > 1").select("n")``, whose
        operations have no state.
    strategy : Hypothesis strategy or list, optional
        Draws one row: a dict, or a tuple in column order. Or the rows themselves. Without it rows of the schema are
        drawn, nulls and extreme values included. To draw, Hypothesis is needed: ``pip install 'penstock[testing]'``.
    schema : str or Schema
        Of what the operation takes.
    flat : bool
        Whether the function is one for `flat_map`.
    examples : int
        How many lists of rows to draw.

    Examples
    --------
    >>> @ps.op(schema="n bigint")                                                           # doctest: +SKIP
    ... def double(r):
    ...     return 2 * r.n
    >>> @double.batch                                                                       # doctest: +SKIP
    ... def _(batch):
    ...     return pa.record_batch({"n": pc.multiply(batch["n"], 2)})
    >>> ps.testing.equal_forms(double, schema="n bigint")                                   # doctest: +SKIP
    """
    parsed = Schema.parse(schema)
    steps = _steps(op, parsed, flat)
    if isinstance(strategy, Iterable):
        _compare(steps, [parsed.coerce(row) for row in strategy])
        return
    st = _hypothesis().strategies
    if strategy is not None and not isinstance(strategy, st.SearchStrategy):
        raise InvalidOption(option="strategy", given=strategy, allowed="a Hypothesis strategy, or a list of rows")
    drawn = rows_of(parsed) if strategy is None else strategy
    hypothesis = _hypothesis()

    def check(rows: Sequence[object]) -> None:
        _compare(steps, [parsed.coerce(row) for row in rows])

    settings = hypothesis.settings(max_examples=examples, deadline=None, database=None)
    settings(hypothesis.given(st.lists(drawn, max_size=ROWS_MAX))(check))()


def rows_of(schema: str | Schema) -> Any:
    """Return a Hypothesis strategy for rows of a schema, as dicts: nulls, empty and extreme values are among them."""
    st, parsed = _hypothesis().strategies, Schema.parse(schema)
    return st.fixed_dictionaries({f.name: _values(f.type, nullable=f.nullable) for f in parsed})


def _values(kind: DataType, *, nullable: bool) -> Any:
    st = _hypothesis().strategies
    made = _present(kind, st)
    return st.none() | made if nullable else made


def _present(kind: DataType, st: Any) -> Any:
    word = kind.kind
    if kind.is_integer:
        low, high = kind.bounds()
        return st.sampled_from([value for value in _NUMBERS if low <= value <= high]) | st.integers(low, high)
    if kind.is_fractional:
        return st.sampled_from(_DOUBLES) | st.floats(width=32 if word is TypeKind.FLOAT else 64)
    if word is TypeKind.DECIMAL:
        return st.integers(-(10**6), 10**6).map(lambda n: Decimal(n).scaleb(-min(2, kind.scale)))
    plain = {
        TypeKind.BOOLEAN: st.booleans(),
        TypeKind.STRING: st.text(max_size=20),
        TypeKind.BINARY: st.binary(max_size=20),
        TypeKind.TIMESTAMP: st.sampled_from(_TIMES_US) | st.integers(0, 4 * 10**15),
        TypeKind.DATE: st.integers(-40_000, 40_000),
    }
    if word in plain:
        return plain[word]
    if word is TypeKind.STRUCT:
        return st.fixed_dictionaries({f.name: _values(f.type, nullable=f.nullable) for f in kind.fields})
    assert kind.element is not None
    element = _values(kind.element, nullable=True)
    if kind.key is None:
        return st.lists(element, max_size=4)
    return st.dictionaries(_values(kind.key, nullable=False), element, max_size=4)


def _hypothesis() -> Any:
    try:
        import hypothesis
        import hypothesis.strategies
    except ImportError:
        raise PenstockError(
            "Hypothesis, which draws the rows, is not installed.",
            hint="pip install 'penstock[testing]', or give the rows themselves.",
        ) from None
    return hypothesis


def _steps(op: Function | Operation | Verb, schema: Schema, flat: bool) -> list[tuple[str, Operation, Schema]]:
    """The operations, with the schemas of what they take."""
    if isinstance(op, Function):
        if op.batch_form is None:
            raise TypeMismatch(what=f"'{op.__name__}' has no batch form.", hint="Add one with @fn.batch.")
        op = Apply(op, flat)
    if isinstance(op, Operation):
        return [(op.kind, op, schema)]
    try:
        made: object = op(stream("in", records(schema=schema)))
    except AttributeError as error:  # as a function of a record has with a stream
        made = error
    if not isinstance(made, Stream):
        raise TypeMismatch(
            what=f"'{getattr(op, '__name__', op)}' does not turn a stream into a stream: {made}.",
            hint="Give what @ps.op has made, or a function such as lambda s: s.filter(…).",
        )
    graph = Graph.check(made.to(memory(), name="out").nodes())
    steps = []
    for node in graph.nodes:
        if node.operation is None:
            continue
        if node.operation.stateful or node.operation.waits or len(node.inputs) != 1:
            raise TypeMismatch(
                what="it keeps state or waits, so it has no batch form of its own.",
                operation=node.name,
                hint="ps.testing.simulate compares its results in both forms.",
            )
        steps.append((node.name, node.operation, graph.schema(node.inputs[0])))
    return steps


def _compare(steps: Sequence[tuple[str, Operation, Schema]], rows: list[Record]) -> None:
    __tracebackhide__ = True
    for name, operation, given in steps:
        operator = operation.build(given, Errors(name, ErrorPolicy.DEAD_LETTER))
        by_record = operator.process(rows)
        batch = given.to_batch(rows)
        by_batch = operator.process_batch(batch)
        output = operation.bind(given)
        failed = [_failed(by_record), _failed(by_batch)]
        text = None
        if failed[0] != failed[1]:
            text = f"the record form fails on rows {failed[0]}, the batch form on rows {failed[1]}"
        elif by_batch.fallbacks and not failed[0] and isinstance(operation, Apply):
            text = f"the batch form fails, and the record form does not: {_why(operator, batch)}"
        else:
            found = [nested_dict(row) for row in output.to_rows(by_batch.columns)]
            wrong = difference(found, wanted := [nested_dict(row) for row in by_record.rows])
            if wrong is None and [*map(repr, found)] != [*map(repr, wanted)]:
                wrong = f"the same rows in another order, or of another type: {found}, not {wanted}"
            text = None if wrong is None else f"the batch form gives something else than the record form:\n{wrong}"
        if text is not None:
            shown = "\n".join(f"  {nested_dict(row)}" for row in rows)
            raise AssertionError(f"'{name}': {text}\nfor these rows:\n{shown}")
        rows = by_record.rows


def _failed(made: Result | BatchResult) -> list[int]:
    """Which of the rows could not be handled."""
    return [each.at for each in made.failures.dead] if made.failures is not None else []


def _why(operator: Operator, batch: Any) -> str:
    vectorised = operator._vectorised
    try:
        if vectorised is not None:
            vectorised(batch)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "it gave up"
