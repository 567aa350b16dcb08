"""Column expressions: users build them, and they compile to Python source and to Arrow kernels."""

from penstock.expr.column import Column, coalesce, col, lit, when
from penstock.expr.infer import infer
from penstock.expr.record import predicate_source, record_function, record_source
from penstock.expr.vector import vectorise

__all__ = [
    "Column",
    "coalesce",
    "col",
    "infer",
    "lit",
    "predicate_source",
    "record_function",
    "record_source",
    "vectorise",
    "when",
]
