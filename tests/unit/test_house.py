"""The house is in order: public names, paths named in the map, import directions, nothing unpickled from a socket."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import penstock as ps

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
PUBLIC = """
    Job Pipeline PenstockError Stream agg coalesce col console fields files foreach generator json_files lit memory op
    rates records run sqlite start stream table testing tumbling when
""".split()
# Lower rooms first; a module may import its own room and those above it in this list.
ROOMS = ["errors", "durations", "checks", "types", "expr", "metrics", "dataset", "operators", "connectors"]
ROOMS += ["pipeline", "protocol", "engine", "control", "runtime"]
PURE = ["types", "expr", "metrics", "dataset", "operators", "pipeline", "protocol", "engine", "control"]


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "penstock"}
    return found


def test_the_public_names_are_these() -> None:
    assert sorted(ps.__all__) == sorted(PUBLIC)
    assert all(hasattr(ps, name) for name in PUBLIC)


def test_every_path_named_in_the_documents_exists() -> None:
    for document in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"):
        text = (ROOT / document).read_text()
        for path in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]*(?:\.[a-z0-9]+)?)`", text):
            assert (SOURCE / path).exists() or (ROOT / path).exists(), f"{document} names {path}"
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (ROOT / link).exists(), f"{document} links to {link}"
    tree = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    for room in re.findall(r"\b([a-z]+)/\s", tree):
        if room != "penstock":
            assert (SOURCE / room).is_dir(), room


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room not in ROOMS:
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "penstock" and len(parts) > 1 and parts[1] in ROOMS:
            # Operations and sources are what a pipeline is made of; connectors know schemas only.
            assert ROOMS.index(parts[1]) <= ROOMS.index(room), f"{room} imports {name}"
        assert not (parts[0] == "penstock" and len(parts) > 1 and parts[1] in ("cli", "dashboard", "bench")), name


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_know_no_clock_no_socket_and_no_chance(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        forbidden = {"time", "random", "socket", "zmq", "threading", "asyncio", "pyspark", "secrets"}
        assert not {name.split(".")[0] for name in imports(path)} & forbidden, path


def test_nothing_is_unpickled_but_by_spark() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if path == SOURCE / "runtime" / "host.py":
            # The one exception: the plan, which Spark itself has brought.
            assert text.count("pickle.loads(packed)") == 1
            text = text.replace("pickle.loads(packed)", "")
        assert not re.search(r"pickle\.loads?\(|recv_pyobj|\bmarshal\b|shelve", text), path


def test_modules_are_of_a_readable_size() -> None:
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 500, path
