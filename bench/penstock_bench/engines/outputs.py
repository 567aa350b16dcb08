"""The log of what left an engine: one file per writer, a line per row: microseconds, a tab, a JSON array."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock_bench.meter.engine import Output

PATTERN = "out-*.log"


def read_outputs(directory: Path) -> list[Output]:
    """Read all logs of a run in the order of time; rows of one writer that left together keep their order."""
    decode = msgspec.json.Decoder(list).decode
    outputs = []
    for path in sorted(directory.glob(PATTERN)):
        for line in path.read_bytes().splitlines():
            at, _, row = line.partition(b"\t")
            outputs.append(Output(int(at), decode(row)))
    outputs.sort(key=lambda output: output.out_us)
    return outputs
