"""Work that costs and gives nothing: cpu_load, mem_load and disk_load; `build` puts it before a transformation."""

from __future__ import annotations

import pyarrow as pa

from penstock.types import Record
from penstock_bench.files.model import Loads
from penstock_bench.foreign.programs import loads as plain

MEMORY_HELD_BYTES = 64 << 20
"""What a transformation with mem_load 1 holds, in every process that runs it."""
MEMORY_COPIED_BYTES = 64 << 10
"""What it reads and writes for every message, going round in what it holds."""
DISK_FILE_BYTES = 64 << 20
"""Size of the file that a transformation with disk_load 1 goes round in."""
DISK_WRITTEN_BYTES = 16 << 10
"""What it writes for every message, and reads again."""


def costly(loads: Loads) -> bool:
    """Whether messages cost more than a transformation's own work."""
    return bool(loads.cpu_load or loads.mem_load or loads.disk_load)


def costs(loads: Loads, rate_eps: float) -> dict[str, float | int]:
    """What one message costs, in the words of `Burner`; at ``rate_eps`` cpu_load is the share of a core kept busy."""
    copied_bytes = max(int(MEMORY_COPIED_BYTES * loads.mem_load), 1) if loads.mem_load else 0
    written_bytes = max(int(DISK_WRITTEN_BYTES * loads.disk_load), 1) if loads.disk_load else 0
    return {
        "message_s": loads.cpu_load / rate_eps,
        "held_bytes": max(int(MEMORY_HELD_BYTES * loads.mem_load), 2 * copied_bytes),
        "copied_bytes": copied_bytes,
        "file_bytes": max(int(DISK_FILE_BYTES * loads.disk_load), written_bytes),
        "written_bytes": written_bytes,
    }


class Burner(plain.Burner):
    """Passes messages on unchanged, at a cost."""

    __name__ = "load"

    def __call__(self, record: Record) -> Record:
        self.burn()
        return record

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Burn for a whole batch."""
        self.burn(batch.num_rows)
        return batch
