"""Whether a worker sees the driver's checkpoint directory: the driver leaves a file there, the worker looks for it."""

from __future__ import annotations

import socket
from pathlib import Path
from uuid import uuid4

from penstock.connectors.store import is_url
from penstock.errors import CheckpointNotShared


def leave_sign(checkpoint: str) -> str:
    """Leave a sign in a checkpoint directory and return its path; empty for a URL, which is the same everywhere."""
    if is_url(checkpoint):
        return ""
    directory = Path(checkpoint)
    directory.mkdir(parents=True, exist_ok=True)
    sign = directory / f"sign-{uuid4().hex}"
    sign.touch()
    return str(sign)


def look_for_sign(sign: str, *, needed: bool) -> bool:
    """Say whether the driver's sign is seen; raise CheckpointNotShared where it is not and must be."""
    seen = not sign or Path(sign).exists()
    if needed and not seen:
        raise CheckpointNotShared(directory=str(Path(sign).parent), machine=socket.gethostname())
    return seen


def remove_sign(sign: str) -> None:
    """Take the sign away."""
    if sign:
        Path(sign).unlink(missing_ok=True)
