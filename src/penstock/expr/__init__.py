"""Column expressions: users build them, and they compile to Python source and to Arrow kernels.

A tree is made of few kinds of nodes (`Op`): references, constants, operators, casts, CASE, and *calls*, which hold the
name of a function of Spark's and their arguments. What a function takes, gives and does is one row of the table
(`table.Function`, `library/`). ``str(column)`` is Spark's SQL for the same value: ``F.expr(str(column))`` is the Spark
column for any tree, without a case for each node. A test compares both engines on it.
"""

from penstock.expr import library as _library  # fills the table
from penstock.expr.column import CaseColumn, Column, Interval, call, coalesce, col, lit, when
from penstock.expr.infer import infer
from penstock.expr.record import predicate_source, record_function, record_source
from penstock.expr.vector import vectorise

assert _library.__all__

__all__ = [
    "CaseColumn",
    "Column",
    "Interval",
    "call",
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
