"""The house is in order: public names, paths named in the map, import directions, nothing unpickled from a socket."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
BENCH = ROOT / "bench" / "penstock_bench"
PUBLIC = """
    Job PenstockError Pipeline Process Stream agg avro backfill bootstrap coalesce col console count_window
    csv_files delta expr fields files foreach from_iterator functions generator global_window http infer interval
    json json_files kafka lit memory op parquet parquet_files postgres protobuf rates read_state records redis
    redis_table register retry run session spark_sink spark_source sql sqlite sse start state stream table tcp_lines
    testing tumbling udp_lines webhook when
""".split()
# Lower rooms first; a module may import its own room and those above it in this list.
ROOMS = ["compiled", "lazy", "redaction", "errors", "durations", "checks", "types", "expr", "metrics", "dataset"]
ROOMS += ["operators", "connectors", "pipeline", "sql", "protocol", "engine", "control", "spark", "runtime"]
SHELLS = {"testing": [], "dashboard": [], "demo": ["dashboard"], "cli": ["dashboard", "demo"]}
"""What stands on the rooms; each may import them all, and of the other shells those named."""
BENCH_ROOMS = ["foreign", "workloads", "meter", "files", "engines", "kafka", "report", "studies"]
"""Of the benchmark tool, lower ones first; what lies beside them (the commands) may import all."""
PURE = ["types", "expr", "metrics", "dataset", "operators", "pipeline", "sql", "protocol", "engine", "control"]


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
            assert any((place / path).exists() for place in (SOURCE, BENCH, ROOT)), f"{document} names {path}"
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (ROOT / link).exists(), f"{document} links to {link}"
    tree = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    for room in re.findall(r"\b([a-z]+)/\s", tree):
        if room != "penstock":
            assert (SOURCE / room).is_dir() or (BENCH / room).is_dir(), room


def test_every_case_of_reliability_has_a_test_that_is_there_or_is_marked_as_open() -> None:
    text = (ROOT / "docs" / "recovery.md").read_text().partition("## The cases")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 38))
    for number, _, tests in rows:
        named = re.findall(r"`(tests/[^`]+)::(test_\w+)`", tests)
        assert named or tests.strip().startswith("open"), f"case {number} names no test and is not open"
        for path, test in named:
            assert re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{test}"


def modules(source: Path) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", sorted(source.rglob("*.py")), ids=lambda path: str(path.relative_to(source)))


def rooms_of(path: Path, source: Path) -> tuple[str, set[str]]:
    """The room of a module, and the rooms of the same package that it imports from."""
    found = {parts[1] for name in imports(path) if (parts := name.split("."))[0] == source.name and len(parts) > 1}
    return path.relative_to(source).parts[0].removesuffix(".py"), found


@modules(SOURCE)
def test_imports_point_down(path: Path) -> None:
    room, used = rooms_of(path, SOURCE)
    if room in ROOMS:
        # Operations and sources are what a pipeline is made of; connectors know schemas only.
        allowed = {*ROOMS[: ROOMS.index(room) + 1]}
    elif room in SHELLS:
        allowed = {*ROOMS, room, *SHELLS[room]}
    else:
        return  # the package's own __init__: the public names
    above = used & {*ROOMS, *SHELLS} - allowed
    assert not above, f"{room} imports {above}"


@modules(SOURCE)
def test_the_product_knows_nothing_of_the_benchmark_tool(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & {"penstock_bench", "yaml"}


@modules(BENCH)
def test_imports_of_the_benchmark_tool_point_down(path: Path) -> None:
    room, used = rooms_of(path, BENCH)
    if room in BENCH_ROOMS:
        above = used & {*BENCH_ROOMS[BENCH_ROOMS.index(room) + 1 :], "cli", "commands", "page"}
        assert not above, f"{room} imports {above}"


def test_programs_for_other_environments_import_nothing_of_ours() -> None:
    for path in (BENCH / "foreign").rglob("*.py"):
        assert not [name for name in imports(path) if name.startswith("penstock")], path


def test_one_lock_serves_both_packages() -> None:
    """What the benchmark tool asks for is in the group that the lock is made from."""
    dev = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    tool = tomllib.loads((ROOT / "bench" / "pyproject.toml").read_text())["project"]
    wanted = [*tool["dependencies"], *(each for extra in tool["optional-dependencies"].values() for each in extra)]
    assert {each for each in wanted if not each.startswith("penstock")} <= set(dev)
    assert f"penstock=={ps.__version__}" in wanted
    assert tool["version"] == ps.__version__


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_know_no_clock_no_socket_and_no_chance(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        forbidden = {"time", "random", "socket", "zmq", "threading", "asyncio", "pyspark", "secrets"}
        assert not {name.split(".")[0] for name in imports(path)} & forbidden, path


def test_nothing_is_unpickled_but_by_spark() -> None:
    for path in [*SOURCE.rglob("*.py"), *BENCH.rglob("*.py")]:
        text = path.read_text()
        if path == SOURCE / "runtime" / "host.py":
            # The one exception: the plan, which Spark itself has brought.
            assert text.count("pickle.loads(packed)") == 1
            text = text.replace("pickle.loads(packed)", "")
        assert not re.search(r"pickle\.loads?\(|recv_pyobj|\bmarshal\b|shelve", text), path


def kinds_of(base: str, *rooms: str) -> set[str]:
    nodes = (node for room in rooms for path in (SOURCE / room).rglob("*.py") for node in ast.walk(parsed(path)))
    classes = (node for node in nodes if isinstance(node, ast.ClassDef))
    return {node.name for node in classes if base in {getattr(each, "id", "") for each in node.bases}}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def asks_for(kinds: set[str], paths: Iterable[Path]) -> list[str]:
    found = []
    for path in paths:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)} & kinds
                found += [f"{path.relative_to(SOURCE)}:{node.lineno} asks for {name}" for name in sorted(asked)]
    return found


def test_ways_and_inputs_say_themselves_what_is_asked_of_them() -> None:
    kinds = kinds_of("Way", "engine/ways") | kinds_of("Input", "engine/inputs")
    assert kinds >= {"Calls", "Here", "Logs", "Readers", "Replicas", "Slots"}
    assert not asks_for(kinds, (SOURCE / "engine").rglob("*.py"))


def test_operations_say_themselves_what_a_plan_and_its_driver_ask_of_them() -> None:
    kinds = kinds_of("Operation", "operators")
    assert kinds >= {"Alternatives", "KeyedAlternatives", "Limited", "Watermark"}
    assert not asks_for(kinds, [*(SOURCE / "pipeline").glob("*.py"), *(SOURCE / "control").rglob("*.py")])


def test_modules_are_of_a_readable_size() -> None:
    for path in [*SOURCE.rglob("*.py"), *BENCH.rglob("*.py")]:
        assert len(path.read_text().splitlines()) <= 500, path


def script(name: str) -> Any:
    """A script of the repository, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_page_of_planted_bugs_names_every_bug_and_the_seed_of_today() -> None:
    made = script("planted_bugs")
    assert made.PAGE.read_text() == made.page(), "run python scripts/planted_bugs.py"
    planted = (ROOT / "tests" / "simulation" / "test_glue_mutations.py").read_text()
    assert set(made.LINES) == set(re.findall(r"^def (\w+)\(patch: Patch\)", planted, re.MULTILINE))


def test_the_page_of_functions_is_that_of_the_table() -> None:
    made = script("functions_page")
    assert made.PAGE.read_text() == made.page(), "run python scripts/functions_page.py"
    assert len(made.MOST_USED) >= 200
    assert sum(name in dir(ps.functions) for name in made.MOST_USED) >= 150
