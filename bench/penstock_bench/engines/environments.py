"""Environments of engines that cannot live beside Penstock, made on demand in a cache directory."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from penstock_bench.engines.launch import Launched
from penstock_bench.meter.errors import EnvironmentFailed

READY = "penstock-ready.json"  # written last: an environment without it was not finished, and is made anew
CAUSE_LINES = 3


def cache_directory() -> Path:
    """Where environments are kept: PENSTOCK_ENGINES, or below the user's cache directory."""
    if named := os.environ.get("PENSTOCK_ENGINES"):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "penstock" / "engines"


@dataclass(frozen=True)
class EngineEnvironment:
    """A virtual environment with an engine in it."""

    name: str
    requirements: tuple[str, ...]  # what pip installs; the first is the engine itself

    @property
    def path(self) -> Path:
        """Its directory; another for other requirements or another Python."""
        text = json.dumps([self.requirements, sys.version_info[:2]])
        return cache_directory() / f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    @property
    def python(self) -> str:
        return str(self.path / "bin" / "python")

    @property
    def ready(self) -> bool:
        return (self.path / READY).exists()

    def versions(self) -> dict[str, str]:
        versions: dict[str, str] = json.loads((self.path / READY).read_text())
        return versions

    def make(self, tell: Callable[[str], None] | None = None) -> None:
        """Make it unless it is there; only one process does at a time. ``tell`` is told that it takes a while."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not self.ready:
                    if tell is not None:
                        tell(f"making the environment of {self.name} in {self.path} ({', '.join(self.requirements)})")
                    self._build()
        except OSError as error:
            raise self._failed("preparing the directory", str(error)) from error

    def _build(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._run("python -m venv", [sys.executable, "-m", "venv", str(self.path)])
        self._run("pip install", [self.python, "-m", "pip", "install", "--quiet", *self.requirements])
        listed = self._run("pip list", [self.python, "-m", "pip", "list", "--format=json"])
        versions = {each["name"]: each["version"] for each in json.loads(listed)}
        (self.path / READY).write_text(json.dumps(versions))

    def _run(self, step: str, command: Sequence[str]) -> str:
        # Outside of this Python's own path and options, which are not the environment's.
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[-CAUSE_LINES:]
            cause = "; ".join(said) or f"exit code {done.returncode}"
            raise self._failed(step, cause.rstrip("."))
        return done.stdout

    def _failed(self, step: str, cause: str) -> EnvironmentFailed:
        return EnvironmentFailed(name=self.name, step=step, cause=cause, path=str(self.path))


class InEnvironment(Launched):
    """An engine that has an environment of its own, made before its first run."""

    environment: ClassVar[EngineEnvironment]

    def prepare(self, tell: Callable[[str, float | None], None]) -> None:
        self.environment.make(lambda text: tell(text, None))

    def version(self) -> str:
        return self.environment.versions()[self.environment.requirements[0].partition("==")[0]]
