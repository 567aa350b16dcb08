"""The workloads on Bytewax over Kafka, with its own connector; started as `run_bytewax` is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
from bytewax.connectors.kafka import (  # type: ignore[import-not-found]
    KafkaSink,
    KafkaSinkMessage,
    KafkaSource,
)
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from confluent_kafka import OFFSET_BEGINNING

from .bytewax_count import Count
from .queries import Counting, query


def _flow(spec: dict[str, Any]) -> Any:
    wanted = query(spec)
    assert isinstance(wanted, Counting)
    keys, row = wanted.keys, wanted.row
    flow, servers = Dataflow("bench"), [spec["servers"]]
    source = KafkaSource(servers, [spec["events"]], tail=True, starting_offset=OFFSET_BEGINNING)
    messages = op.input("events", flow, source)
    keyed = op.flat_map_batch("keys", messages, lambda batch: [(key, None) for m in batch for key in keys(m.value)])
    counted = op.stateful_batch("count", keyed, Count)
    rows = op.flat_map_batch(
        "rows",
        counted,
        lambda batch: [KafkaSinkMessage(key.partition("\t")[0].encode(), row(key, n)) for key, n in batch],
    )
    op.output("results", rows, KafkaSink(servers, spec["results"], add_config={"linger.ms": spec["linger_ms"]}))
    return flow


flow = _flow(json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text()))
