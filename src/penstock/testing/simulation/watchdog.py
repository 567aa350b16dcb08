"""Who waits for whom, in words: printed when a simulated job does not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.inspect import InputView, WorkerView
from penstock.engine.line import Item
from penstock.testing.simulation.world import START_US

if TYPE_CHECKING:
    from penstock.testing.simulation.run import Simulation


def describe(simulation: Simulation) -> str:
    """Describe what the driver and every live worker wait for."""
    s = simulation.driver.machine.scheduler.inspect()
    recording = ", recording a commit" if s.is_recording else ""
    lines = [
        f"after {simulation.world.steps} steps, {(simulation.world.now_us - START_US) / 1e6:.3f} s:",
        f"{simulation.driver.name}: {s.phase.value}, epoch {s.begun_epoch} begun, {s.committed_epoch} committed, "
        f"generation {s.generation}{recording}; waits for the epoch of {sorted(s.waiting_epoch)}, the recovery of "
        f"{sorted(s.waiting_rollback)}, the end of {sorted(s.waiting_finish)}, the stop of {sorted(s.waiting_stop)}",
    ]
    for process in simulation.processes.values():
        if process.dead:
            continue
        state = "frozen" if process.frozen else "waits for Start" if process.worker is None else ""
        lines.append(f"{process.name} of {process.driver.name}: {state}")
        if process.worker is not None:
            lines += _worker(process.worker.inspect())
    for seat in simulation.seats.values():
        if seat.slot is not None:
            who, state = seat.slot.identity, "frozen" if seat.frozen else seat.slot.state.value
            lines.append(f"{seat.name}: slot {who.incarnation} of group {who.group}, {state}, {seat.slot.waiting} wait")
    return "\n".join(lines)


def _worker(worker: WorkerView) -> list[str]:
    lines = [
        f"  generation {worker.generation}, epoch {worker.epoch_pending} asked for, being stored {worker.storing}, "
        f"held {worker.held}"
    ]
    for unit in worker.units:
        full = [view.log.name for view in unit.logs if not view.log.has_room]
        inputs = [_input(each) for each in unit.inputs]
        lines.append(
            f"  {unit.name}.{unit.key[1]}: epoch {unit.done_epoch} done{', finished' if unit.finished else ''}; "
            f"inputs {inputs}; no room in {full}"
        )
        if unit.line:
            away = [each.number for each in unit.line if isinstance(each, Item) and not each.is_complete]
            switching = ", to switch" if unit.is_switching else ""
            lines.append(f"    {unit.range}{switching}: micro-batches {away} away, {len(unit.line)} in line")
    for slot in worker.slots:
        lines.append(f"  knows slot {slot.incarnation} of group {slot.group}, has {sorted(slot.work)}")
    for channel, sender in worker.senders.items():
        if sender.is_waiting:
            lines.append(f"  {channel}: sent {sender.sent}, received {sender.received}, log {sender.bounds}")
    return lines


def _input(each: InputView) -> str:
    if each.state.ended:
        return "ended"
    waits = "aligned" if each.aligned else "open"
    return f"{waits}, {'something' if each.has_block else 'nothing'} to read at {each.state.next_id}"
