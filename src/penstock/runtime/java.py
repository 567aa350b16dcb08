"""The Java that Spark will use: says exactly what to install where there is none, and ends it while it starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import psutil

from penstock.errors import JavaMissing

JAVA_VERSION_MIN = 17
END_JVM_S = 2.0
"""How long a JVM that is interrupted while it starts may take to end, before it is killed."""
_INSTALL = (
    f"Install Java {JAVA_VERSION_MIN} or later: 'apt-get install openjdk-17-jre-headless' on Debian or Ubuntu, "
    "'brew install openjdk@17' on macOS; or point JAVA_HOME to one."
)


def check_java() -> str:
    """Return the java program that Spark will start, or raise JavaMissing."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not program.exists():
            raise JavaMissing(f"JAVA_HOME is '{home}', but there is no bin/java in it.", hint=_INSTALL)
        found = str(program)
    else:
        on_path = shutil.which("java")
        if on_path is None:
            raise JavaMissing("Spark needs Java, and there is no 'java' on the PATH.", hint=_INSTALL)
        found = on_path
    version = java_version(found)
    if version < JAVA_VERSION_MIN:
        raise JavaMissing(
            f"'{found}' is Java {version or 'of an unknown version'}; Spark needs {JAVA_VERSION_MIN}.", hint=_INSTALL
        )
    return found


def java_version(program: str) -> int:
    """Return the major version of a java program, or 0 if it does not tell."""
    try:
        # In a session of its own: Ctrl-C must not look like a Java that does not work.
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False, start_new_session=True
        ).stderr
    except OSError:
        return 0
    match = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    if match is None:
        return 0
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def end_jvm() -> None:
    """End the JVM that this process has started for Spark, and what is below it, while there is no work to lose."""
    processes = [each for each in psutil.Process().children() if _is_gateway(each)]
    for each in processes:  # grows: the JVM begins as scripts that start others
        with suppress(psutil.Error):
            each.suspend()  # it starts no other one while they are looked for
            processes += each.children()
    # Asked first, as Spark then takes its temporary directories away.
    for ask in (psutil.Process.terminate, psutil.Process.kill):
        for each in processes:
            with suppress(psutil.Error):
                ask(each)
                each.resume()
        deadline = monotonic() + END_JVM_S
        while any(map(_is_alive, processes)) and monotonic() < deadline:
            sleep(0.02)


def _is_gateway(process: psutil.Process) -> bool:
    try:
        return "_PYSPARK_DRIVER_CONN_INFO_PATH" in process.environ()
    except psutil.Error:
        return False


def _is_alive(process: psutil.Process) -> bool:
    """Asked in this way and not waited for: whoever has started it waits for it too, and must learn how it ended."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
