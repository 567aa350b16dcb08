"""Committed records on their way into the driver's process; the driver's shell and the harness hand them over here.

An instance of a sink delivers the rows of an epoch when it hears that the epoch is committed, and then says how far it
has come. It may hear that only after it has reported the next epoch, so reports of epochs say nothing about deliveries.
After a crash it delivers the last committed epoch again:

==========================  ================================  =========================================================
message                     state                             what happens
==========================  ================================  =========================================================
Deliver(epoch, part)        part was seen                     nothing
Deliver(epoch, part)        new                               the sink takes the rows
Delivered(epoch)            some instance is behind           noted
Delivered(epoch)            all instances have come so far    the sink hears how far they all have come
==========================  ================================  =========================================================
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.connectors.base import Sink
from penstock.errors import PenstockError, ProtocolError, SinkFailed, naming
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.types import Schema


class Deliveries:
    """The driver's end of sinks that live in its process: takes every part once, whatever a crash repeats."""

    def __init__(self, plan: Plan) -> None:
        self._sinks: dict[str, tuple[Sink, msgspec.msgpack.Decoder[Any], Schema]] = {}
        self._seen: dict[tuple[str, int], tuple[int, int]] = {}
        self._told: dict[str, list[int]] = {}
        """By sink and instance: how far it has come."""
        self._reached: dict[str, int] = {}
        for unit in plan.units:
            for spec in unit.ops:
                sink = spec.sink
                if sink is not None:
                    handed = sink.delivered(spec.schema)
                    decoder = msgspec.msgpack.Decoder(list[handed.record_type])  # type: ignore[name-defined]
                    self._sinks[spec.name] = sink, decoder, spec.schema
                    self._told[spec.name] = [0] * unit.instances

    def take(self, message: m.Deliver | m.Delivered) -> int:
        """Hand records to their sink, or the word that there are no more; return how many were new."""
        try:
            return self._rows(message) if isinstance(message, m.Deliver) else self._note(message)
        except PenstockError as error:
            raise error.at(message.sink) from None
        except Exception as error:
            kind = self._sinks[message.sink][0].kind
            raise SinkFailed(sink=kind, cause=error, operation=message.sink) from error

    def finish(self) -> None:
        """The job has ended well: wait until the sinks' part of it here is done."""
        for name, (sink, *_) in self._sinks.items():
            with naming(name):
                sink.finish()

    def _rows(self, message: m.Deliver) -> int:
        key, part = (message.sink, message.instance), (message.epoch, message.part)
        if part <= self._seen.get(key, (0, -1)):
            return 0
        if message.epoch <= self._reached.get(message.sink, 0):
            raise ProtocolError(f"rows of epoch {message.epoch} come after the word that there are no more.")
        self._seen[key] = part
        sink, decoder, schema = self._sinks[message.sink]
        rows = decoder.decode(message.rows)
        sink.deliver_epoch(message.epoch, rows, schema)
        return len(rows)

    def _note(self, message: m.Delivered) -> int:
        told = self._told[message.sink]
        told[message.instance] = max(told[message.instance], message.epoch)
        reached = min(told)
        if reached > self._reached.get(message.sink, 0):
            self._reached[message.sink] = reached
            sink, _, schema = self._sinks[message.sink]
            sink.reached(reached, schema)
        return 0
