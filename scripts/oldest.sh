#!/bin/sh
# Runs the tests that depend on Spark with the oldest Spark that pyproject.toml allows; all else is as locked.
set -eu
cd "$(dirname "$0")/.."
OLDEST="${OLDEST:-4.0}"
if [ ! -e .venv-oldest/.installed ] || [ requirements.lock -nt .venv-oldest/.installed ]; then
    "${PYTHON:-python3}" -m venv .venv-oldest
    # All that is locked but pyspark itself, which comes in another version.
    awk '/^[^ ]/ { skip = /^pyspark==/ } !skip' requirements.lock > .venv-oldest/requirements.lock
    .venv-oldest/bin/python -m pip install -q --require-hashes --no-deps -r .venv-oldest/requirements.lock
    .venv-oldest/bin/python -m pip install -q --no-deps "pyspark==$OLDEST.*"
    .venv-oldest/bin/python -m pip install -q --no-deps --no-build-isolation -e . -e bench
    touch .venv-oldest/.installed
fi
exec .venv-oldest/bin/python -m pytest -q tests/unit/runtime tests/unit/spark tests/unit/operators \
    tests/integration/test_jobs.py tests/integration/test_backfill.py tests/integration/test_bootstrap.py \
    tests/integration/test_transform.py tests/integration/test_sessions.py tests/integration/test_functions.py "$@"
