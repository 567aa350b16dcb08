"""``python -m penstock.testing.simulation``: replays a seed, or runs a range of them; ``make simulate`` calls it."""

from __future__ import annotations

import argparse
import sys
import traceback

from penstock.testing.simulation.run import Simulation
from penstock.testing.simulation.scenario import Scenario


def main() -> int:
    """Run what the command line asks for; the exit code is the number of seeds that failed, up to 1."""
    parser = argparse.ArgumentParser(prog="penstock.testing.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and print everything that happens")
    parser.add_argument("--first", type=int, default=0, help="first seed of a range")
    parser.add_argument("--count", type=int, default=1000, help="seeds in the range")
    given = parser.parse_args()
    if given.seed is not None:
        return 0 if _run(given.seed, loud=True) else 1
    failed = [seed for seed in range(given.first, given.first + given.count) if not _run(seed, loud=False)]
    print(f"{given.count} seeds, {len(failed)} failed{': ' if failed else ''}{', '.join(map(str, failed))}")
    return 1 if failed else 0


def _run(seed: int, *, loud: bool) -> bool:
    simulation = Simulation(Scenario.of(seed), keep_lines=loud)
    scenario, error = simulation.scenario, None
    try:
        simulation.run()
    except Exception as raised:
        error = raised
    if loud:
        print("\n".join(simulation.world.lines or ()))
        print(f"{scenario.shape.value}; {len(scenario.rows)} records in {len(scenario.partitions)} partitions")
        print(f"{scenario.options}\n{scenario.weather}")
        for fault in scenario.faults:
            done = "struck" if fault in simulation.injected else "not reached"
            print(f"{fault.action.value}, when {fault.moment.value if fault.moment else fault.at_us}: {done}")
        print(f"trace {simulation.world.trace:08x}, {simulation.world.steps} steps, ", end="")
        print(f"{simulation.disk.committed_epoch} epochs committed, {simulation.switches} switches")
    if error is not None:
        if loud:
            traceback.print_exception(error, file=sys.stderr)
        else:
            print(f"make simulate SEED={seed}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    return error is None


if __name__ == "__main__":
    sys.exit(main())
