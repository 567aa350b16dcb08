"""The JSON Schema of workload files, as published in benchmarks/workload.schema.json; run this module to renew it."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from penstock_bench.files.model import Document


def workload_schema() -> dict[str, Any]:
    """Return the schema: what `load` accepts, but for the connections between the parts."""
    made = msgspec.json.schema(Document)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock workload file",
        **{key: value for key, value in made.items() if key != "$ref"},
        "$ref": made["$ref"],
    }


def schema_text() -> str:
    """Return the schema as the file has it."""
    return msgspec.json.format(msgspec.json.encode(workload_schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
