"""What every table must do: find the same rows in both forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from penstock.operators import LookupTable
from penstock.testing.conformance.report import Conformance, check_hidden, check_identity, check_schema, sent
from penstock.testing.rows import assert_rows
from penstock.types import attribute, nested_dict


def check_table(
    table: LookupTable, rows: Iterable[object], *, absent: object, secrets: Sequence[str] = ()
) -> Conformance:
    """Check that a table finds its rows, and nothing else, in both forms.

    Parameters
    ----------
    table : LookupTable
        What to check.
    rows : iterable
        The rows that are in it.
    absent : object
        A key that is not in it.
    secrets : sequence of str
        Credentials that it was given; none may be shown anywhere.
    """
    __tracebackhide__ = True
    kind = type(table).__name__
    report = Conformance(kind)
    schema = check_schema(table.schema)
    records = [schema.coerce(row) for row in rows]
    keys = [getattr(record, attribute(table.key)) for record in records]
    with report.check("it says what it is, and can be sent to workers"):
        check_identity(table, kind, secrets)
        schema.field(table.key)
        check_hidden(secrets, {"describe()": table.describe()})
    with report.check("record form finds its rows"):
        finder = sent(table).finder()
        for key, record in zip(keys, records, strict=True):
            found = finder.get(key)
            assert found is not None, f"{key!r} is not found"
            assert_rows([nested_dict(found)], [nested_dict(record)])
        assert finder.get(absent) is None, f"{absent!r} is found"
        assert finder.get(None) is None, "a null key is found"
    with report.check("batch form finds the same"):
        asked = pa.array([absent, *keys, None, *keys[:1]], schema.field(table.key).type.arrow)
        columns, places = sent(table).finder().columns(asked)
        taken = schema.to_rows(columns.take(places.drop_null()))
        assert places.is_valid().to_pylist() == [False, *[True] * len(keys), False, *[True] * len(keys[:1])]
        assert_rows(taken, [*records, *records[:1]], in_order=True)
        none = sent(table).finder().columns(asked[:0])[1]
        assert len(none) == 0, "an empty batch finds something"
    return report
