"""The replayable uniform dataset: logs of identified blocks under both forms of every operation."""

from penstock.dataset.bell import NEVER_US, Bell
from penstock.dataset.block import Block, Mark, join_columns, pack, unpack
from penstock.dataset.channel import Ack, ChannelId, Receiver, ReceiverView, Sender, SenderView
from penstock.dataset.log import Log, LogView

__all__ = [
    "NEVER_US",
    "Ack",
    "Bell",
    "Block",
    "ChannelId",
    "Log",
    "LogView",
    "Mark",
    "Receiver",
    "ReceiverView",
    "Sender",
    "SenderView",
    "join_columns",
    "pack",
    "unpack",
]
