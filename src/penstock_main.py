"""The `penstock` program. Its first second goes into imports, in which Ctrl-C has nothing to end but the program."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command line."""
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from penstock.cli import main as command

    signal.signal(signal.SIGINT, before)
    command()
