"""The sink into a topic: what the driver checks before the start, and the writers that the workers open."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import pyarrow as pa

from penstock.connectors.base import RESUME_ONCE, Sink, SinkWriter, Stager, WriterContext
from penstock.connectors.kafka.access import Access, described
from penstock.connectors.kafka.encoding import RECORD_BYTES_MAX, Layout
from penstock.connectors.kafka.immediate import ImmediateWriter
from penstock.connectors.kafka.rights import TIMEOUT_MS_MIN, check_transactions
from penstock.connectors.kafka.tokens import TIMEOUT_MS, Channel, token_ends
from penstock.connectors.kafka.transactions import TransactionWriter, encode_entries
from penstock.errors import CheckpointMismatch, InvalidOption, PenstockError
from penstock.types import Schema


class Delivery(Enum):
    """What a reader may find in the topic."""

    EXACTLY_ONCE = "exactly-once"
    IMMEDIATE = "immediate"


class KafkaSink(Sink):
    """Writes to a topic; build it with :func:`kafka`."""

    def __init__(self, access: Access, topic: str, layout: Layout, delivery: Delivery, tokens: str) -> None:
        self._access = access
        self._tokens = tokens
        self._token_ends: tuple[int, ...] = ()
        self._topic = topic
        self._layout = layout
        self._delivery = delivery
        self._topic_id = ""
        timeout_ms = access.options.get("transaction.timeout.ms")
        if timeout_ms is not None and not (str(timeout_ms).isdigit() and int(timeout_ms) >= TIMEOUT_MS_MIN):
            raise InvalidOption(
                option="options", given=f"transaction.timeout.ms={timeout_ms}", allowed=f"{TIMEOUT_MS_MIN} or more",
                hint=" An epoch must be sent within it.",
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"kafka({self._access!r}, {self._topic!r})"

    @property
    def kind(self) -> str:
        return "kafka"

    @property
    def _record_bytes_max(self) -> int:
        return int(self._access.options.get("message.max.bytes", RECORD_BYTES_MAX))

    def check(self, schema: Schema) -> None:
        self._layout = self._layout.settled(schema, self._topic)
        self._topic_id, _ = described(self._access, self._topic, "WRITE")
        if self._delivery is Delivery.EXACTLY_ONCE:
            check_transactions(self._access, int(self._access.options.get("transaction.timeout.ms", TIMEOUT_MS)))
            self._token_ends = token_ends(self._access, self._topic, self._tokens)

    def _channel(self, job_id: str, operation: str, instance: int) -> Channel:
        """The name is the same in every process and every run of a job."""
        name = f"penstock-{job_id}-{operation}-{instance}"
        return Channel(self._access, self._topic, name, self._tokens, self._token_ends)

    def ports(self, schemas: Sequence[Schema], resumed: dict[str, object] | None) -> dict[str, Schema]:
        if resumed is not None:
            self.check(schemas[0])  # the schema may have changed since
        return super().ports(schemas, resumed)

    def state(self) -> dict[str, object]:
        return {"topic": self._topic, "topic_id": self._topic_id, "delivery": self._delivery.value}

    def writes_where(self, state: dict[str, object]) -> bool:
        return state.get("topic_id") == self._topic_id

    def resume(self, state: dict[str, object]) -> None:
        if state.get("topic_id", self._topic_id) != self._topic_id:
            before = state.get("topic")
            what = (
                f"topic '{before}', and now '{self._topic}'" if before != self._topic else f"another topic '{before}'"
            )
            raise CheckpointMismatch(f"the last run wrote to {what}.", hint=RESUME_ONCE)
        if state.get("delivery", self._delivery.value) != self._delivery.value:
            raise CheckpointMismatch(
                f"the sink's delivery was {state['delivery']}, and is now {self._delivery.value}.", hint=RESUME_ONCE
            )
        if self._delivery is Delivery.EXACTLY_ONCE:
            epoch = int(str(state["epoch"]))
            # The run before may have left a transaction open, which its writer ends; what is behind it is found there.
            token = self._channel(str(state["job_id"]), str(state["operation"]), 0).token(0, stable=True)
            if token is not None and token > epoch:
                raise CheckpointMismatch(
                    f"topic '{self._topic}' has epoch {token} of this job, and the checkpoint ends with epoch {epoch}.",
                    hint="Restore the newest checkpoint, or begin anew with another checkpoint directory and topic.",
                )

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        if self._delivery is Delivery.IMMEDIATE:
            return ImmediateWriter(self._access, self._topic, self._layout, schema, context, self._record_bytes_max)
        channel = self._channel(context.job_id, context.operation, context.instance)
        return TransactionWriter(channel, self._layout, schema, context, self._record_bytes_max)

    def stager(self, schema: Schema, operation: str) -> Stager:
        encode = self._layout.encoder(schema, self._record_bytes_max)

        def stage(batch: pa.RecordBatch) -> bytes:
            try:
                return encode_entries(encode(schema.to_rows(batch)))
            except PenstockError as error:
                raise error.at(operation) from None

        return stage
