"""Who waits for whom, in words: printed when a simulated job does not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.detour import Item
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
    for seat in simulation.seats.values():
        if seat.slot is not None:
            who, state = seat.slot.identity, "frozen" if seat.frozen else seat.slot.state.value
            lines.append(
                f"{seat.name}: slot {who.incarnation} of group {who.group}, {state}, {len(seat.slot._queue)} wait"
            )
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
        if unit.detour is not None:
            away = [each.item for each in unit.detour.line if isinstance(each, Item) and each.result is None]
            closing = ", on its way back" if unit.detour.closing else ""
            lines.append(
                f"    {unit.detour.route}{closing}: micro-batches {away} away, {len(unit.detour.line)} in line"
            )
    for known in worker._desk.pool._known.values():
        lines.append(f"  knows slot {known.ready.incarnation} of group {known.ready.group}, has {sorted(known.work)}")
    for channel, sender in worker._senders.items():
        if sender._is_waiting:
            lines.append(f"  {channel}: sent {sender._sent}, received {sender._received}, log {sender._log.bounds}")
    return lines


def _input(each: EdgeInput) -> str:
    if each.ended:
        return "ended"
    waits = "aligned" if each.aligned else "open"
    return f"{waits}, {'something' if each.peek() is not None else 'nothing'} to read at {each._next_id}"
