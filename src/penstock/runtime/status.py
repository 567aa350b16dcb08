"""Status files: a running job writes its figures to a private file now and then; `penstock top` reads it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from penstock.control.monitor import Status
from penstock.errors import JobNotFound


def status_dir() -> Path:
    """Directory of the status files, readable by this user alone."""
    base = os.environ.get("PENSTOCK_STATE") or os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    directory = Path(base) / "penstock" / "jobs"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory


class StatusFile:
    """The file of one job; replaced as a whole, so that a reader never sees half of it."""

    def __init__(self, job: str) -> None:
        self.path = status_dir() / f"{job}-{os.getpid()}.json"

    def write(self, status: Status) -> None:
        """Replace the contents."""
        temporary = self.path.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(status))
        temporary.replace(self.path)

    def remove(self) -> None:
        """The job is over."""
        self.path.unlink(missing_ok=True)


def read_status(path: Path) -> Status | None:
    """Read a status file; None if it is gone or not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, msgspec.DecodeError):
        return None


def running_jobs() -> list[tuple[Path, Status]]:
    """Jobs of this user on this machine, the one started last first; files of processes that are gone are removed."""
    found = []
    for path in status_dir().glob("*.json"):
        status = read_status(path)
        if status is None or not _alive(status.pid):
            path.unlink(missing_ok=True)
            path.with_suffix(".sock").unlink(missing_ok=True)
        else:
            found.append((path, status))
    return sorted(found, key=lambda each: each[1].uptime_s)


def find_job(name: str | None) -> Path:
    """Return the status file of the job of that name, or of the only one running."""
    jobs = running_jobs()
    names = ", ".join(status.job for _, status in jobs) or "none"
    for path, status in jobs:
        if name is None or status.job == name:
            return path
    what = f"no job '{name}' is running here." if name else "no job is running here."
    raise JobNotFound(what, hint=f"Running: {names}. Start one with 'penstock demo' or 'penstock run FILE.py'.")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
