"""Scoring: the demonstration's model, called for every event, with its exact result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import islice
from operator import attrgetter

import numpy as np

from penstock.demo.scoring import FEATURE_NAMES, FIELDS, HIDDEN_WEIGHTS, OUTPUT_WEIGHTS, SCALE, exact_scores, score
from penstock.types import Record
from penstock_bench.workloads.base import REPLAY_RECORDS, Workload, by_number

_features = attrgetter("number", *FEATURE_NAMES)


def expected(records: Iterable[Record]) -> dict[int, float]:
    scores: dict[int, float] = {}
    records = iter(records)
    while events := list(islice(records, REPLAY_RECORDS)):
        features = np.array([[getattr(event, name) for name in FEATURE_NAMES] for event in events], dtype=np.int64)
        scores.update(zip((event.number for event in events), exact_scores(features).tolist(), strict=True))
    return scores


SCORING = Workload(
    name="scoring",
    title="a neural network of 8 x 32 x 1, called for every event",
    fields=FIELDS,
    format="columns",
    build=lambda events: events.map(score),
    expected=expected,
    # The libraries' exponentials differ in the last bits.
    compare=by_number("score", partial(math.isclose, rel_tol=1e-12)),
    columns=("number", "score"),
    line=lambda record: b",".join(b"%d" % value for value in _features(record)),
    program=lambda: {"hidden": HIDDEN_WEIGHTS, "output": OUTPUT_WEIGHTS, "scale": SCALE},
    not_in_sql="its model is a function in Python, which SQL does not call",
)
