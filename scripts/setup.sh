#!/bin/sh
# Makes .venv with the locked dependencies, and sees to it that a Java for Spark is there.
set -eu
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-python3}"

fail() { printf 'penstock set-up: %s\n' "$*" >&2; exit 1; }

# Asked for its version, not looked up: a shim may be on the PATH without a Python behind it.
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
    fail "'$PYTHON' does not run. Install Python 3.11 or later, or run: make PYTHON=/path/to/python3 …"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "Python $version ('$PYTHON') is too old. Penstock needs 3.11 or later: make PYTHON=python3.12 …"

as_root_on_debian() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    as_root_on_debian || fail "Python's venv module is missing. Install it: apt-get install python$version-venv"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$version-venv"
fi

java_major() {
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    command -v "$java" >/dev/null 2>&1 || return 0
    "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

[ -z "${JAVA_HOME:-}" ] || [ -x "$JAVA_HOME/bin/java" ] ||
    fail "JAVA_HOME is '$JAVA_HOME', but there is no bin/java in it. Correct it, or unset it to use the java on the PATH."
major=$(java_major)
if [ "${major:-0}" -lt 17 ]; then
    if as_root_on_debian && [ -z "${JAVA_HOME:-}" ]; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless ||
            fail "Java 17 could not be installed. Install it yourself: apt-get install openjdk-17-jre-headless"
    else
        fail "Spark needs Java 17 or later (found: ${major:-none}${JAVA_HOME:+ in JAVA_HOME=$JAVA_HOME}).
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless
  Fedora:          sudo dnf install java-17-openjdk-headless
  macOS:           brew install openjdk@17"
    fi
fi

echo "installing into .venv, about half a minute the first time…"
[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
.venv/bin/python -m pip install -q --require-hashes -r requirements.lock
.venv/bin/python -m pip install -q --no-deps --no-build-isolation -e . -e bench

# What runs in every turn of a worker. Where it cannot be compiled, the sources run as they are, more slowly.
headers=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')
if as_root_on_debian && { ! command -v cc >/dev/null 2>&1 || [ ! -f "$headers/Python.h" ]; }; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev ||
        echo "penstock set-up: no C compiler could be installed" >&2
    [ -f "$headers/Python.h" ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$version-dev" || true
fi
.venv/bin/python scripts/compile.py ||
    echo "penstock set-up: the engine could not be compiled; it runs all the same, more slowly" >&2
