"""The process that Spark forks workers from: it has imported what they need, so that a lost one is back much sooner.

Spark runs it in place of its own `pyspark.daemon`, which imports nothing, as libraries may start threads that a fork
leaves behind. Of those here only Arrow's allocator has one, and knows how to do without it.
"""

from __future__ import annotations

import gc

import pyspark.worker  # noqa: F401 (imported for its workers)
from pyspark.daemon import manager

import penstock.runtime.host
import penstock.runtime.slots

if __name__ == "__main__":
    penstock.runtime.host.warm_arrow_up()
    gc.freeze()  # the workers share these pages as long as nobody writes to them
    manager()
