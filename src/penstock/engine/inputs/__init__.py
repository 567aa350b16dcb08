"""Inputs of units: partitions of a source (`readers`), or the logs of other units (`logs`)."""

from penstock.engine.inputs.base import Input, Stretch, Taken
from penstock.engine.inputs.logs import Logs
from penstock.engine.inputs.readers import Readers

__all__ = ["Input", "Logs", "Readers", "Stretch", "Taken"]
