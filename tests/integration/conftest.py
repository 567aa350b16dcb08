"""How tests on real Spark wait."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from waiting import wait_for

TESTS = Path(__file__).parents[1]
SUPPORT = str(TESTS / "support")
"""What worker processes need too, found by its path; set before any of them is started."""
sys.path.insert(0, SUPPORT)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SUPPORT, str(TESTS), os.environ.get("PYTHONPATH")]))
fsspec.register_implementation("slow", "penstock_test_store.SlowStore", clobber=True)


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Wait for a condition, with a bound."""
    return wait_for


@pytest.fixture(scope="session")
def queries(spark: None) -> Any:
    """A session of the embedded Spark for queries over little data."""
    from pyspark.sql import SparkSession

    from penstock.spark.guard import guarded
    from penstock.spark.sessions import query_session

    session = guarded(query_session(SparkSession._instantiatedSession))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # To compile a plan takes longer than to run it over a few rows.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session
