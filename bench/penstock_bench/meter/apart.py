"""Measurements in a process of their own: a module run as a program, which prints what it found as one line of JSON."""

from __future__ import annotations

import subprocess
import sys
from typing import TypeVar

import msgspec

from penstock.errors import PenstockError

RUN_S_MAX = 600.0
T = TypeVar("T")


def apart(module: str, *arguments: str, kind: type[T]) -> T:
    """Run a module of ours and read its last line; what it failed with is told by the last line of its errors."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_S_MAX)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise PenstockError(f"'{' '.join([module, *arguments])}' failed: {last[0]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=kind)


def tell(found: msgspec.Struct) -> None:
    """Be that program's last word."""
    print(msgspec.json.encode(found).decode())
