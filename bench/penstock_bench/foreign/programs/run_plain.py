"""No engine at all: one loop in Python over the same socket into the same log. Its latency is the meter's floor."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

from .lines import Lines
from .outlog import OutLog
from .queries import Counting, query


def main() -> None:
    """Run the query of a specification until the input ends."""
    spec = json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text())
    wanted = query(spec)
    counts: defaultdict[str, int] = defaultdict(int)
    log = OutLog(spec["out"], "plain")
    lines = Lines(spec["port"], blocking=True)
    while (batch := lines.read()) is not None:
        for line in batch:
            if isinstance(wanted, Counting):
                for key in wanted.keys(line):
                    counts[key] += 1
                    log.row(wanted.row(key, counts[key]))
            else:
                for row in wanted.rows(line):
                    log.row(row)
    if not isinstance(wanted, Counting):
        for row in wanted.end():
            log.row(row)
    log.close()


if __name__ == "__main__":
    main()
