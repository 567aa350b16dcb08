"""Scoring: a NumPy model rates every payment; what looks like fraud goes to files, the rest is summed up."""

import numpy as np
import pyarrow as pa

import penstock as ps

# A logistic regression; in practice, load what you have trained.
WEIGHTS = np.array([0.004, 0.8, 0.002])
BIAS = -6.0


def probability(features):
    return 1.0 / (1.0 + np.exp(-(features @ WEIGHTS + BIAS)))


@ps.op(schema="payment bigint, time timestamp, amount double, fraud double", pure=True)
def score(r):
    features = np.array([r.amount, r.attempts, r.distance_km])
    return r.payment, r.time, r.amount, probability(features)


@score.batch  # the same for many records at once
def score_batch(batch):
    features = np.column_stack([batch[name] for name in ("amount", "attempts", "distance_km")])
    kept = {name: batch[name] for name in ("payment", "time", "amount")}
    return pa.record_batch({**kept, "fraud": probability(features)})


payments = ps.generator(
    {
        "payment": ps.fields.sequence(),
        "time": ps.fields.event_time(),
        "amount": ps.fields.uniform(1, 500),
        "attempts": ps.fields.integers(1, 5),
        "distance_km": ps.fields.uniform(0, 1_000),
    },
    rate=500,
    format="columns",
)

scored = ps.stream("payments", payments).map(score).split(fraud=ps.col("fraud") >= 0.5)

passed = (
    scored["rest"]
    .window(ps.tumbling("1s", on="time", lateness="1s"))
    .aggregate(payments=ps.agg.count(), turnover=ps.agg.sum("amount"))
)

pipeline = scored["fraud"].to(ps.files("out/fraud", existing="replace"), name="fraud") + passed.to(
    ps.console(), name="passed"
)

if __name__ == "__main__":
    ps.run(pipeline, name="scoring")
