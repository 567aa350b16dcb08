"""What is imported when: a worker starts with what it needs, and names of packages are those of their modules."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps

SOURCE = Path(ps.__file__).parent
HEAVY = """
    confluent_kafka deltalake fsspec http.client http.server hypothesis pandas prometheus_client
    psutil psycopg pyarrow.dataset redis rich sqlglot sqlite3 typer
""".split()
"""What neither a program that only imports Penstock nor a worker needs before somebody uses it."""


def imported_by(code: str) -> set[str]:
    told = "import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{told}"], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_a_worker_imports_no_library_and_no_room_that_it_can_do_without() -> None:
    found = imported_by("import penstock.runtime.host, penstock.runtime.slots")
    assert found & {*HEAVY} == set()
    rooms = {"penstock.testing", "penstock.sql", "penstock.control.driver", "penstock.pipeline.streams"}
    assert found & (rooms | {"penstock.connectors.kafka", "penstock.connectors.http", "penstock.runtime.job"}) == set()


def test_importing_penstock_imports_nothing_but_that() -> None:
    found = {name for name in imported_by("import penstock") if "penstock" in name}
    assert found == {"penstock", "penstock.compiled", "penstock.lazy"}


@pytest.mark.parametrize("package", [ps, ps.connectors])
def test_type_checkers_see_the_names_where_they_are(package: object) -> None:
    """The imports that type checkers read, and the table that names are found by, give the same objects."""
    source = (
        SOURCE / package.__name__.removeprefix("penstock").replace(".", "/").lstrip("/") / "__init__.py"
    ).read_text()
    checked = {
        alias.asname or alias.name: (node.module, alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert sorted(checked) == sorted(package.__all__)
    for name, (module, original) in checked.items():
        assert getattr(package, name) is getattr(sys.modules[module], original)


def test_a_module_does_not_take_the_place_of_the_function_of_its_name() -> None:
    code = """
import penstock.connectors.console, penstock.connectors.kafka.sink, penstock.expr, penstock.sql
import penstock as ps
from penstock.connectors import console
for found in (console, ps.console, ps.kafka, ps.expr, ps.sql, ps.connectors.kafka):
    assert callable(found), found
assert ps.connectors.fields is ps.fields and ps.col("a") is not None
try:
    ps.nothing
except AttributeError as error:
    assert str(error).startswith("'penstock' has no 'nothing'."), error
else:
    raise AssertionError
"""
    assert "penstock.connectors.console" in imported_by(code)


def test_a_stream_shows_itself_in_a_fresh_program() -> None:
    code = "import penstock as ps\nps.stream('n', ps.records([(1,)], schema='n int')).filter('n > 0').show()"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "n\n-\n1\n"
