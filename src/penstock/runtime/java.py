"""Finds the Java that Spark will use, and says exactly what to install where there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.errors import JavaMissing

JAVA_VERSION_MIN = 17
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
