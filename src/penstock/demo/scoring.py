"""The demonstration's pipeline: a small neural network, called for every event; in Python the case for batches.

Features and weights are multiples of a power of two small enough that every sum in the network is exact. So the order
in which NumPy adds up, which differs between one record and many, cannot change a bit of the result.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connectors import fields
from penstock.operators import op

FEATURES = 8
HIDDEN = 32
SCALE = 256
"""Features and weights are whole numbers in units of 1 / SCALE."""
_BLOCK_EVENTS = 1024
"""Events of a batch scored at once: the hidden layer stays in the cache, and BLAS starts no threads for so few."""
FEATURE_NAMES = [f"f{i}" for i in range(FEATURES)]

_random = Random(7)
HIDDEN_WEIGHTS = [[_random.randint(-SCALE, SCALE) for _ in range(HIDDEN)] for _ in range(FEATURES)]
OUTPUT_WEIGHTS = [_random.randint(-SCALE // 4, SCALE // 4) for _ in range(HIDDEN)]
_W1 = np.array(HIDDEN_WEIGHTS) / SCALE
_W2 = np.array(OUTPUT_WEIGHTS) / SCALE


def _network(features: Any) -> Any:
    hidden = np.maximum(features / SCALE @ _W1, 0.0)
    return 1.0 / (1.0 + np.exp(-(hidden @ _W2)))


@op(schema="number bigint not null, score double not null", pure=True)
def score(r: Any) -> tuple[int, float]:
    """Score one event."""
    features = np.array((r.f0, r.f1, r.f2, r.f3, r.f4, r.f5, r.f6, r.f7))
    return r.number, float(_network(features))


@score.batch
def _score_batch(events: pa.RecordBatch) -> pa.RecordBatch:
    features = np.column_stack([events.column(name).to_numpy() for name in FEATURE_NAMES])
    scores = np.empty(events.num_rows)
    for first in range(0, events.num_rows, _BLOCK_EVENTS):
        block = slice(first, first + _BLOCK_EVENTS)
        scores[block] = _network(features[block])
    return pa.RecordBatch.from_arrays([events.column("number"), pa.array(scores)], names=["number", "score"])


def exact_scores(features: Any) -> Any:
    """Score rows of features in whole numbers, up to the last division and the exponential."""
    logits = np.maximum(features @ np.array(HIDDEN_WEIGHTS), 0) @ np.array(OUTPUT_WEIGHTS)
    return 1.0 / (1.0 + np.exp(-logits / SCALE**3))


FIELDS = {
    "number": fields.sequence(),
    **{name: fields.integers(-4 * SCALE, 4 * SCALE) for name in FEATURE_NAMES},
}
"""What the generator draws for an event: its number and its features."""
