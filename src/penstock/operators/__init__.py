"""Operations: each a configuration with a record form and a batch form that give equal results.

`stateless` has those that keep nothing, `keyed` those with state; what all of them are is in `base`.
"""

from penstock.operators.base import (
    MAIN,
    BatchKind,
    BatchResult,
    Expansion,
    Form,
    Lateness,
    Operation,
    Operator,
    Result,
    StatefulOperator,
)
from penstock.operators.errors import DEAD_LETTER_SCHEMA, DEAD_LETTERS, ErrorPolicy, Errors
from penstock.operators.keyed.aggregation import Aggregation
from penstock.operators.keyed.combine import Combine
from penstock.operators.keyed.counting import CountWindow, count_window, global_window
from penstock.operators.keyed.distinct import DropDuplicates
from penstock.operators.keyed.join import Join, join, join_asof
from penstock.operators.keyed.limit import Limit, Limited
from penstock.operators.keyed.match import Match, Pairing
from penstock.operators.keyed.process import Context, Process, Processing
from penstock.operators.keyed.reduce import LATE, Reduce
from penstock.operators.keyed.tag import JoinHow, Side, Tag
from penstock.operators.keyed.windows import (
    OVERLAP_MAX,
    Emit,
    Global,
    Session,
    Sliding,
    Tumbling,
    Window,
    session,
    sliding,
    tumbling,
)
from penstock.operators.keys import Partitioner, check_keys
from penstock.operators.stateless.calls import MapAsync, Retry, retry
from penstock.operators.stateless.columns import REST, Filter, Project, Split
from penstock.operators.stateless.explode import Explode
from penstock.operators.stateless.functions import Apply, Function, as_function, op
from penstock.operators.stateless.lookup import (
    Finder,
    How,
    Lookup,
    LookupTable,
    Places,
    Table,
    TablePlace,
    table,
)
from penstock.operators.stateless.parse import ParseJson, TimeUnit
from penstock.operators.stateless.transform import Transform
from penstock.operators.stateless.watermark import Watermark

__all__ = [
    "DEAD_LETTERS",
    "DEAD_LETTER_SCHEMA",
    "LATE",
    "MAIN",
    "OVERLAP_MAX",
    "REST",
    "Aggregation",
    "Apply",
    "BatchKind",
    "BatchResult",
    "Combine",
    "Context",
    "CountWindow",
    "DropDuplicates",
    "Emit",
    "ErrorPolicy",
    "Errors",
    "Expansion",
    "Explode",
    "Filter",
    "Finder",
    "Form",
    "Function",
    "Global",
    "How",
    "Join",
    "JoinHow",
    "Lateness",
    "Limit",
    "Limited",
    "Lookup",
    "LookupTable",
    "MapAsync",
    "Match",
    "Operation",
    "Operator",
    "Pairing",
    "ParseJson",
    "Partitioner",
    "Places",
    "Process",
    "Processing",
    "Project",
    "Reduce",
    "Result",
    "Retry",
    "Session",
    "Side",
    "Sliding",
    "Split",
    "StatefulOperator",
    "Table",
    "TablePlace",
    "Tag",
    "TimeUnit",
    "Transform",
    "Tumbling",
    "Watermark",
    "Window",
    "as_function",
    "check_keys",
    "count_window",
    "global_window",
    "join",
    "join_asof",
    "op",
    "retry",
    "session",
    "sliding",
    "table",
    "tumbling",
]
