"""The replayable uniform dataset: logs of identified blocks under both forms of every operation."""

from penstock.dataset.block import Block, Mark, join_columns, pack, unpack
from penstock.dataset.channel import Ack, ChannelId, Receiver, Sender
from penstock.dataset.log import Log

__all__ = [
    "Ack",
    "Block",
    "ChannelId",
    "Log",
    "Mark",
    "Receiver",
    "Sender",
    "join_columns",
    "pack",
    "unpack",
]
