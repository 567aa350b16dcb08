"""Engines over Kafka: all read one topic and write to another, and one outside reader takes the latency.

No engine makes its own events, and none stamps its own results.
"""

import threading
from collections.abc import Callable


def heard(read: Callable[[], object]) -> threading.Event:
    """Return an event that is set when something was read, as from the standard input."""
    event = threading.Event()

    def listen() -> None:
        read()
        event.set()

    threading.Thread(target=listen, daemon=True).start()
    return event
