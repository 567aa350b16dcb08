"""Brings Java archives from Maven Central into a cache directory, each compared with its checksum.

Kafka for tests, and the Kafka connectors of other engines in the benchmarks, come this way.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from penstock.errors import JavaMissing, SparkFailed

_SETTINGS = "PENSTOCK_IVY_SETTINGS"
_CACHE = "PENSTOCK_CACHE"
_BRING_S = 300


@dataclass(frozen=True)
class Jar:
    """An archive by its coordinates."""

    org: str
    name: str
    version: str
    checksum: str
    """SHA-256."""

    @staticmethod
    def of(line: str) -> Jar:
        """Read ``org:name:version checksum``."""
        coordinates, checksum = line.split()
        org, name, version = coordinates.split(":")
        return Jar(org, name, version, checksum)

    @property
    def file(self) -> str:
        """What it is called in the cache."""
        return f"{self.name}-{self.version}.jar"


def cache_directory(name: str) -> Path:
    """Where archives are kept between runs; ``PENSTOCK_CACHE`` names another place."""
    base = os.environ.get(_CACHE) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    return Path(base) / name


def fetch(name: str, jars: Sequence[Jar], then: Callable[[Path], None] | None = None) -> Path:
    """Return the directory of this name with the archives in its ``lib``; the first call brings them.

    The Ivy that comes with Spark does. Where a mirror has to be used, ``PENSTOCK_IVY_SETTINGS`` names a file of Ivy
    settings.

    Parameters
    ----------
    then : callable, optional
        Makes what else belongs into the directory, once.
    """
    place = cache_directory(name)
    done = place / "complete"
    if done.exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place / "lock"):
        if not done.exists():
            _resolve(place, jars)
            _verify(place / "lib", jars)
            if then is not None:
                then(place)
            done.touch()
    return place


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time fetch."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _resolve(place: Path, jars: Sequence[Jar]) -> None:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    (ivy,) = Path(pyspark.origin).parent.glob("jars/ivy-*.jar")
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        wanted = "".join(
            f"<dependency org={quoteattr(jar.org)} name={quoteattr(jar.name)} rev={quoteattr(jar.version)} "
            f"transitive='false'><artifact name={quoteattr(jar.name)} type='jar' ext='jar'/></dependency>"
            for jar in jars
        )
        (here / "ivy.xml").write_text(
            "<ivy-module version='2.0'><info organisation='penstock' module='jars'/>"
            f"<dependencies>{wanted}</dependencies></ivy-module>"
        )
        settings = os.environ.get(_SETTINGS)
        if settings is None:
            # Without descriptions: the list is complete, and each would be one more request.
            settings = str(here / "settings.xml")
            Path(settings).write_text(
                "<ivysettings><settings defaultResolver='central'/><resolvers>"
                "<ibiblio name='central' m2compatible='true' usepoms='false'/></resolvers></ivysettings>"
            )
        command = [java(), "-cp", str(ivy), "org.apache.ivy.Main", "-settings", settings]
        command += ["-ivy", str(here / "ivy.xml"), "-cache", str(here / "cache")]
        command += ["-retrieve", f"{place}/lib/[artifact]-[revision].[ext]"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=_BRING_S, check=False)
    if found.returncode:
        words = ("FAILED", "ERROR", "not found:")
        cause = next((line.strip() for line in found.stdout.splitlines() if any(word in line for word in words)), "")
        raise SparkFailed(f"its jars could not be fetched ({cause or found.stderr.strip()[-200:]})")


def _verify(lib: Path, jars: Sequence[Jar]) -> None:
    for jar in jars:
        path = lib / jar.file
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != jar.checksum:
            path.unlink(missing_ok=True)
            raise SparkFailed(f"{path.name} is not what was expected")


def java() -> str:
    """The Java that runs them."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if not found or not Path(found).exists():
        raise JavaMissing("there is no Java.")
    return found
