"""`make services`: start the servers that can be had here, say where they are, and end them at Ctrl-C."""

from __future__ import annotations

import importlib
import signal
from contextlib import ExitStack, closing

from services import KINDS, address_of


def main() -> None:
    """Run until somebody ends it."""
    with ExitStack() as stack:
        for module, kind in KINDS.items():
            try:
                found = importlib.import_module(f"services.{module}")
            except ModuleNotFoundError:
                continue
            reason = found.missing()
            if reason is not None:
                print(f"{module:10} not here: {reason}")
                continue
            server = stack.enter_context(closing(getattr(found, kind)()))
            print(f"{module:10} {address_of(server)}", flush=True)
        print("Ctrl-C ends them.", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
