"""The replayable uniform dataset: logs of identified blocks under both forms of every operation."""

from penstock.dataset.bell import NEVER_US, Bell
from penstock.dataset.block import Block, Mark, join_columns, pack, unpack
from penstock.dataset.channel import Ack, ChannelId, Receiver, ReceiverView, Sender, SenderView
from penstock.dataset.log import Log, LogView
from penstock.dataset.sizes import Scale, cut_columns, cut_rows

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
    "Scale",
    "Sender",
    "SenderView",
    "cut_columns",
    "cut_rows",
    "join_columns",
    "pack",
    "unpack",
]
