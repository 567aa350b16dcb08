"""One operation at work with its error policy and its figures: what chains, slices and lineage are made of."""

from __future__ import annotations

from penstock.metrics import OpStats
from penstock.operators import Errors, Form, Operation, Operator
from penstock.operators.alternatives import AlternativesOperator
from penstock.operators.errors import ErrorCounts
from penstock.pipeline.plan import OpSpec


class Stage:
    """One operation of the chain at work."""

    __slots__ = ("counts", "errors", "operator", "process", "stats")

    def __init__(self, name: str, operator: Operator, errors: Errors) -> None:
        self.operator = operator
        self.errors = errors
        self.counts = ErrorCounts()
        self.process = operator.process
        self.stats = OpStats(name, Form.RECORD.value)

    def take_failures(self) -> int:
        """How often the alternative that was to be used has failed since the last look."""
        operator = self.operator
        return operator.failures.pop(operator.active, 0) if isinstance(operator, AlternativesOperator) else 0

    @staticmethod
    def of(spec: OpSpec, using: str | None = None) -> Stage:
        """Build an operation that is not a sink; ``using`` names its alternative, if it has some."""
        assert isinstance(spec.operation, Operation)
        errors = errors_of(spec)
        operator = spec.operation.build(spec.schema, errors)
        if using is not None and isinstance(operator, AlternativesOperator):
            operator.use(using)
        return Stage(spec.name, operator, errors)


def errors_of(spec: OpSpec) -> Errors:
    """The error policy of an operation, under the name that users know."""
    return Errors(spec.display, spec.on_error, can_choose=spec.sink is None)
