"""Keyed process functions: a user's class with states, timers and several outputs for each key.

`function` is what users write, `declared` and `state` their states; `operation` is the step of a pipeline, `operator`
runs it, `table` is what one instance keeps, `waiting` the records that wait for their turn in the order of time.
"""

from penstock.operators.keyed.process.function import Context, Process
from penstock.operators.keyed.process.operation import Processing, ProcessState
from penstock.operators.keyed.process.operator import ProcessOperator

__all__ = ["Context", "Process", "ProcessOperator", "ProcessState", "Processing"]
