"""Blocks as they travel between workers: a header, and rows or columns as frames of their own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.dataset import Block, ChannelId, cut_rows
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.types import Record


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

    def block(self, message: m.Data, payloads: Sequence[bytes]) -> Block:
        """The block that has come."""
        rows: list[Record] | None = None
        size_bytes = 0
        if payloads and not message.packed:
            decode = self._decoders[message.edge]
            rows = decode(payloads[0])
            for more in payloads[1:]:
                rows += decode(more)
        for payload in payloads:
            size_bytes += len(payload)
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
            message.mark,
            payloads[0] if payloads and message.packed else None,
            size_bytes,
        )

    def frames(self, channel: ChannelId, block: Block, generation: int) -> tuple[list[bytes], int]:
        """A block as it is sent, and what its records weigh.

        Blocks are cut by what their records are estimated to weigh. Where that is far off, the records travel in
        several frames; only one that is too large by itself cannot.
        """
        payloads, size_bytes = self._payloads(channel, block) if block.count else ([], 0)
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
            mark=block.mark,
            packed=block.packed is not None,
            frames=len(payloads),
        )
        return [m.encode(header), *payloads], size_bytes

    def _payloads(self, channel: ChannelId, block: Block) -> tuple[list[bytes], int]:
        if block.packed is not None:
            return [block.packed], len(block.packed)
        edge = self._plan.edges[channel.edge]
        rows = block.as_rows(edge.schema)
        payload = self._encode(rows)
        if len(payload) <= m.MESSAGE_BYTES_MAX:
            return [payload], len(payload)
        payloads = [packed for _, packed in cut_rows(rows, m.MESSAGE_BYTES_MAX)]
        for each in payloads:
            m.check_size(each, self._plan.units[edge.producer].name_at(edge.op_index))
        return payloads, sum(map(len, payloads))
