"""Committed records on their way into the driver's process; the driver's shell and the harness hand them over here."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.connectors.base import Sink
from penstock.errors import PenstockError, SinkFailed
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.types import Schema


class Deliveries:
    """The driver's end of sinks that live in its process: takes every part once, whatever a crash repeats."""

    def __init__(self, plan: Plan) -> None:
        self._sinks: dict[str, tuple[Sink, msgspec.msgpack.Decoder[Any], Schema]] = {}
        self._seen: dict[tuple[str, int], tuple[int, int]] = {}
        for unit in plan.units:
            for spec in unit.ops:
                if isinstance(spec.operation, Sink):
                    decoder = msgspec.msgpack.Decoder(list[spec.schema.record_type])  # type: ignore[name-defined]
                    self._sinks[spec.name] = spec.operation, decoder, spec.schema

    def take(self, message: m.Deliver) -> int:
        """Hand records to their sink; return how many were new."""
        key, part = (message.sink, message.instance), (message.epoch, message.part)
        if part <= self._seen.get(key, (0, -1)):
            return 0
        self._seen[key] = part
        sink, decoder, schema = self._sinks[message.sink]
        rows = decoder.decode(message.rows)
        try:
            sink.deliver(rows, schema)
        except PenstockError as error:
            raise error.at(message.sink) from None
        except Exception as error:
            raise SinkFailed(sink=sink.kind, cause=error, operation=message.sink) from error
        return len(rows)
