"""Rescales under load with kills: ``python benchmarks/rescales.py [RESCALES] [EVENTS/S] [KILL EVERY] [SCALE EVERY]``.

The pipeline that ``penstock chaos`` brings along runs until its number of workers has changed so many times, with all
instances in their places, while workers are killed and replicas come and go. Intervals are means, in seconds. What it
has written is then compared with what must be in it, record by record.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from pathlib import Path
from time import monotonic

import msgspec

from asking import numbers
from keeping import keep, spread
from penstock.demo.chaos import Campaign, Killer, at_least
from penstock.demo.oracle import judge, pipeline
from penstock.demo.soak import WORKERS, Rescales, Scaler
from penstock.runtime.job import Job, plan_of
from penstock_bench.studies.findings import at_most

PARALLELISM = 3
LOOK_S = 0.05
PATIENCE = 8
"""So many times as long as the changes take if every other one is of workers and comes about."""


def is_over(campaign: Campaign, rescales: Rescales) -> bool:
    """Whether the job has gone on after every fault."""
    return all(each.resumed_s for each in campaign.kills) and all(each.committed_s for each in rescales.done)


def main() -> None:
    """Rescale, judge, keep."""
    wanted, rate, kill_s, scale_s = numbers(__doc__, rescales=50, rate=2_000.0, kill_every=8.0, scale_every=2.0)
    seed = secrets.randbits(32)
    sys.stdout.write(f"seed {seed}\n")
    with tempfile.TemporaryDirectory(prefix="penstock-rescales-") as place:
        out = Path(place)
        plan = plan_of(pipeline(out, rate), parallelism=PARALLELISM, epoch="500ms", name="bench-rescales")
        campaign, rescales = Campaign(seed, int(kill_s * 1e6)), Rescales(plan, seed, int(scale_s * 1e6))
        kill, scale = Killer(campaign), Scaler(rescales)
        began = monotonic()
        with Job(plan) as job:
            while rescales.arrived(WORKERS) < wanted and not job.ended:
                if monotonic() - began > 60 + PATIENCE * wanted * scale_s:
                    sys.stdout.write(f"only {rescales.arrived(WORKERS)} of {wanted:g} have come about\n")
                    break
                kill(job)
                scale(job)
                job.wait(LOOK_S)
            until = monotonic() + 30  # the last ones are made good too
            while monotonic() < until and not is_over(campaign, rescales):
                campaign.observe(job.status())
                rescales.observe(job.status())
                job.wait(LOOK_S)
            job.drain()
            report = job.wait()
        assert report is not None
        planned = {"kills": at_least(report.seconds, int(kill_s * 1e6)), "rescales": int(wanted)}
        verdict = judge(out, report.offsets)
    found = campaign.findings(report, rescales=rescales.done, planned=planned, verdict=verdict)
    sys.stdout.write("\n".join([*found.lines, *(found.faults or ["nothing speaks against it"])]) + "\n")
    pauses = spread([each.pause_ms for each in report.moves])
    sys.stdout.write(f"{len(report.moves)} moves of instances, pause {pauses} ms\n")
    figures = {
        "seconds": report.seconds,
        "events": report.events_in,
        "arrived": {what: rescales.arrived(what) for what in rescales.can},
        "passed": found.passed and rescales.arrived(WORKERS) >= wanted,
        "faults": found.faults,
        "moves": len(report.moves),
        "pause_ms": pauses,
        "latency_ms": msgspec.to_builtins(report.latency_ms),
        "chaos": msgspec.to_builtins(found),
    }
    settings = {"rescales": int(wanted), "rate": rate, "kill_every_s": kill_s, "scale_every_s": scale_s}
    faults = at_most(f"what speaks against {wanted:g} rescales with kills", len(found.faults), "findings", 0)
    keep("rescales", settings, [faults], figures)
    sys.exit(0 if figures["passed"] else 1)


if __name__ == "__main__":
    main()
