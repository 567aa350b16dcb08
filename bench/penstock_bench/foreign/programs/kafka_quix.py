"""The workloads on Quix Streams, in its own environment; several applications of one group share the partitions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from quixstreams import Application, State  # type: ignore[import-not-found]

from .queries import counting, specification


def main() -> None:
    """Run the query of a specification until it is ended; the argument is the number of this application."""
    spec = specification()
    wanted = counting(spec)
    keys, row = wanted.keys, wanted.row
    application = Application(
        spec["servers"],
        consumer_group=f"bench-{spec['events']}",
        auto_offset_reset="earliest",
        processing_guarantee=spec["guarantee"],
        state_dir=str(Path(spec["out"]) / f"state-{sys.argv[1]}"),
        producer_extra_config={"linger.ms": spec["linger_ms"], "enable.idempotence": True},
        loglevel="WARNING",
    )

    def count(key: str, state: State) -> bytes:
        found = (state.get(key) or 0) + 1
        state.set(key, found)
        return row(key, found)

    events = application.topic(spec["events"], value_deserializer="bytes")
    results = application.topic(spec["results"], value_serializer="bytes", key_serializer="str")
    found: Any = application.dataframe(events).apply(keys, expand=True)
    found = found.group_by(
        lambda key: key.partition("\t")[0], name="campaign", key_serializer="str", key_deserializer="str"
    )
    found.apply(count, stateful=True).to_topic(results)
    application.run()


if __name__ == "__main__":
    main()
