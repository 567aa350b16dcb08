"""Operations: each a configuration with a record form and a batch form that give equal results."""

from penstock.operators.aggregation import LATE, Aggregation, Combine, Merge
from penstock.operators.base import MAIN, BatchKind, BatchResult, Form, Operation, Operator, Result, StatefulOperator
from penstock.operators.columns import REST, Filter, Project, Split
from penstock.operators.errors import DEAD_LETTER_SCHEMA, DEAD_LETTERS, ErrorPolicy, Errors
from penstock.operators.join import Join, Side, Tag, join
from penstock.operators.keys import Partitioner, check_keys
from penstock.operators.lookup import How, Lookup, Table, table
from penstock.operators.match import Match
from penstock.operators.parse import ParseJson, TimeUnit
from penstock.operators.user import Apply, Function, as_function, op
from penstock.operators.windows import Emit, Sliding, Tumbling, Window, sliding, tumbling

__all__ = [
    "DEAD_LETTERS",
    "DEAD_LETTER_SCHEMA",
    "LATE",
    "MAIN",
    "REST",
    "Aggregation",
    "Apply",
    "BatchKind",
    "BatchResult",
    "Combine",
    "Emit",
    "ErrorPolicy",
    "Errors",
    "Filter",
    "Form",
    "Function",
    "How",
    "Join",
    "Lookup",
    "Match",
    "Merge",
    "Operation",
    "Operator",
    "ParseJson",
    "Partitioner",
    "Project",
    "Result",
    "Side",
    "Sliding",
    "Split",
    "StatefulOperator",
    "Table",
    "Tag",
    "TimeUnit",
    "Tumbling",
    "Window",
    "as_function",
    "check_keys",
    "join",
    "op",
    "sliding",
    "table",
    "tumbling",
]
