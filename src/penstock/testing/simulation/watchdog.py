"""Who waits for whom, in words: printed when a simulated job does not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.edges import EdgeInput
from penstock.engine.input_unit import InputUnit
from penstock.engine.worker import Worker
from penstock.testing.simulation.world import START_US

if TYPE_CHECKING:
    from penstock.testing.simulation.run import Simulation


def describe(simulation: Simulation) -> str:
    """Describe what the driver and every live worker wait for."""
    s = simulation.driver.scheduler
    lines = [
        f"after {simulation.world.steps} steps, {(simulation.world.now_us - START_US) / 1e6:.3f} s:",
        f"{simulation.driver.name}: {s.phase.value}, epoch {s.begun_epoch} begun, {s.committed_epoch} committed, "
        f"generation {s.generation}; waits for the epoch of {sorted(s._waiting_epoch)}, the recovery of "
        f"{sorted(s._waiting_rollback)}, the end of {sorted(s._waiting_finish)}, the stop of {sorted(s._waiting_stop)}",
    ]
    for process in simulation.processes.values():
        if process.dead:
            continue
        state = "frozen" if process.frozen else "waits for Start" if process.worker is None else ""
        lines.append(f"{process.name} of {process.driver.name}: {state}")
        if process.worker is not None:
            lines += _worker(process.worker)
    return "\n".join(lines)


def _worker(worker: Worker) -> list[str]:
    lines = [
        f"  generation {worker._generation}, epoch {worker._epoch_pending} asked for, being stored "
        f"{sorted(worker._storing)}, held {sorted(worker._held)}"
    ]
    for unit in worker.units:
        full = [log.name for output in unit.outputs for log in output.logs if not log.has_room]
        inputs = [_input(each) for each in unit.inputs] if isinstance(unit, InputUnit) else []
        lines.append(
            f"  {unit.spec.name}.{unit.instance}: epoch {unit.done_epoch} done{', finished' if unit.finished else ''}; "
            f"inputs {inputs}; no room in {full}"
        )
    for channel, sender in worker._senders.items():
        if sender._is_waiting:
            lines.append(f"  {channel}: sent {sender._sent}, received {sender._received}, log {sender._log.bounds}")
    return lines


def _input(each: EdgeInput) -> str:
    if each.ended:
        return "ended"
    waits = "aligned" if each.aligned else "open"
    return f"{waits}, {'something' if each.peek() is not None else 'nothing'} to read at {each._next_id}"
