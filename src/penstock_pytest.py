"""A plugin for pytest, found by it as soon as Penstock is installed: the fixture ``harness``.

Nothing of Penstock is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.pipeline.pipeline import Pipeline
    from penstock.testing import Harness


@pytest.fixture
def harness() -> Iterator[Callable[..., Harness]]:
    """Make harnesses of pipelines, which are closed when the test is over: ``harness(pipeline, inputs={…})``."""
    from contextlib import ExitStack

    from penstock.testing import Harness

    with ExitStack() as open_ones:

        def make(pipeline: Pipeline, **options: Any) -> Harness:
            return open_ones.enter_context(Harness(pipeline, **options))

        yield make
