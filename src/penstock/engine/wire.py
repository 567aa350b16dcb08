"""Blocks as they travel between workers: a header, and rows or columns as a frame of their own."""

from __future__ import annotations

import msgspec

from penstock.dataset import Block, ChannelId, Mark
from penstock.errors import LimitExceeded
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m


class Wire:
    """Makes frames of blocks and blocks of frames."""

    def __init__(self, plan: Plan, incarnation: int) -> None:
        self._plan = plan
        self._incarnation = incarnation
        self._encode = msgspec.msgpack.Encoder().encode
        self._decoders = {
            edge.id: msgspec.msgpack.Decoder(list[edge.schema.record_type]).decode  # type: ignore[name-defined]
            for edge in plan.edges
        }

    def block(self, message: m.Data, payload: bytes | None) -> Block:
        """The block that has come."""
        rows = self._decoders[message.edge](payload) if payload and not message.packed else None
        return Block(
            message.first,
            message.last,
            message.epoch,
            rows,
            None,
            message.count,
            message.due_us,
            message.event_time_us,
            message.lane,
            message.straggler_us,
            message.idle,
            Mark(message.mark),
            payload if message.packed else None,
        )

    def frames(self, channel: ChannelId, block: Block, generation: int) -> list[bytes]:
        """A block as it is sent."""
        header = m.Data(
            edge=channel.edge,
            producer=channel.producer,
            consumer=channel.consumer,
            incarnation=self._incarnation,
            generation=generation,
            first=block.first,
            last=block.last,
            epoch=block.epoch,
            count=block.count,
            due_us=block.due_us,
            event_time_us=block.event_time_us,
            lane=block.lane,
            straggler_us=block.straggler_us,
            idle=block.idle,
            mark=int(block.mark),
            packed=block.packed is not None,
        )
        if not block.count:
            return [m.encode(header)]
        payload = (
            block.packed
            if block.packed is not None
            else self._encode(block.as_rows(self._plan.edges[channel.edge].schema))
        )
        if len(payload) > m.MESSAGE_BYTES_MAX:
            name = self._plan.units[self._plan.edges[channel.edge].producer].name
            raise LimitExceeded(what="bytes in one block", limit=m.MESSAGE_BYTES_MAX, got=len(payload), operation=name)
        return [m.encode(header), payload]
