"""Reads a workload file, JSON or YAML, and checks all of it; starts nothing. The bench commands call `load`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_type_hints

from penstock_bench.files.layout import Layout, lay_out
from penstock_bench.files.model import OPERATORS, AnyTransformation, Document, Head, Source
from penstock_bench.files.problems import Problem, WorkloadRefused, not_allowed, shown, unknown_word
from penstock_bench.files.reading import convert, field_names, read_plain
from penstock_bench.files.sources import SourcePlan, plan_source

ENTRIES_MAX = 1_000
# Colons are for the operations that a transformation is made of: filter1:load, join1:pair.
_NAME = re.compile(r"[^/:\s](?:[^/:\n]{0,78}[^/:\s])?")
T = TypeVar("T")
Given = tuple[str, str, object]  # name, path and value of an entry, as the file has it
Placed = dict[str, tuple[str, T]]  # what is called by a name, with the path at which it stands


@dataclass(frozen=True)
class Description:
    """A workload file that can run; sources are in the order of the file."""

    path: Path
    title: str
    seed: int
    sources: dict[str, SourcePlan]
    transformations: dict[str, AnyTransformation]
    layout: Layout

    @property
    def name(self) -> str:
        return self.path.stem


def load(path: str | Path) -> Description:
    """Read and check a workload file; `WorkloadRefused` has every problem found, each with the path of its field."""
    path = Path(path)
    problems: list[Problem] = []
    raw = read_plain(path)
    known = field_names(Document)
    problems += [unknown_word(key, "field", key, known) for key in raw if key not in known]
    problems += [Problem(field, "missing.") for field in ("sources", "sinks") if field not in raw]
    head = convert(Head, {key: raw[key] for key in field_names(Head) if key in raw}, "", problems) or Head()
    given_sources = list(_entries(raw.get("sources", {}), "sources", problems))
    sources = _each(given_sources, lambda entry, at: convert(Source, entry, at, problems))
    given = list(_entries(raw.get("transformations", {}), "transformations", problems))
    transformations: Placed[AnyTransformation] = _each(given, lambda entry, at: _transformation(entry, at, problems))
    sinks = _sinks(raw.get("sinks", []), problems)
    plans = {}
    for place, (name, (at, source)) in enumerate(sources.items()):
        plan = plan_source(name, source, at, place, len(sources), head.seed, path.parent, problems)
        if plan is not None:
            plans[name] = plan
    if not problems and not sources:
        problems.append(Problem("sources", "there must be at least one."))
    # How parts are connected can be judged once all of them are known; what nobody is called, at once.
    if problems:
        problems += _undefined(given_sources, given, sinks)
    layout = None if problems else lay_out(plans, transformations, sinks, problems)
    if layout is None or problems:
        raise WorkloadRefused(path=str(path), problems=problems)
    plain = {name: each for name, (_, each) in transformations.items()}
    title = head.title or ", ".join(str(type(each).__struct_config__.tag) for each in plain.values()) or "messages"
    return Description(path, title, head.seed, plans, plain, layout)


def _each(given: list[Given], convert: Callable[[object, str], T | None]) -> Placed[T]:
    made = ((name, at, convert(entry, at)) for name, at, entry in given)
    return {name: (at, each) for name, at, each in made if each is not None}


def _undefined(sources: list[Given], transformations: list[Given], sinks: list[str]) -> Iterator[Problem]:
    """Names that are referred to and that nothing in the file has, whatever else is wrong with it."""
    named = dict.fromkeys(name for name, _, _ in (*sources, *transformations))
    known: list[str] = [*named]
    references: list[tuple[str, object]] = [(f"sinks[{i}]", name) for i, name in enumerate(sinks)]
    for _, at, entry in transformations:
        if isinstance(entry, dict):
            lists = (entry.get(field) for field in ("inputs", "outputs"))
            inputs, outputs = (each if isinstance(each, list) else [] for each in lists)
            known += [name for name in outputs if isinstance(name, str)]
            references.append((f"{at}.input", entry.get("input")))
            references += [(f"{at}.inputs[{i}]", name) for i, name in enumerate(inputs)]
    for at, name in references:
        # An output of a split that is wrong itself cannot be told from a name that is wrong.
        if isinstance(name, str) and name not in known and name.partition("__")[0] not in named:
            yield unknown_word(at, "source or transformation", name, known)


def _entries(raw: object, field: str, problems: list[Problem]) -> Iterator[Given]:
    """Yield name, path and value of each entry of a map by name, or of a list of entries that have a name."""
    seen: set[str] = set()
    if isinstance(raw, dict):
        found = [(name, f"{field}.{name}", entry) for name, entry in raw.items()]
    elif isinstance(raw, list):
        found = []
        for i, entry in enumerate(raw):
            if isinstance(entry, dict) and "name" in entry:
                found.append((entry["name"], f"{field}[{i}]", entry))
            else:
                problems.append(Problem(f"{field}[{i}].name", "missing: in a list every entry has a name."))
    else:
        problems.append(not_allowed(field, raw, "a map by name, or a list of objects that have a name"))
        return
    if len(found) > ENTRIES_MAX:
        problems.append(Problem(field, f"{len(found)} entries are too many. Allowed: at most {ENTRIES_MAX}."))
        return
    for name, at, entry in found:
        if isinstance(entry, dict) and entry.get("name", name) != name:
            problems.append(Problem(f"{at}.name", f"it is {shown(entry['name'])}, but it stands under '{name}'."))
        elif not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(not_allowed(at, name, "a name of 1 to 80 characters without '/' and ':'"))
        elif name in seen:
            problems.append(Problem(f"{at}.name", f"there are two of the name '{name}'."))
        else:
            seen.add(name)
            yield name, at, entry


def _transformation(raw: object, at: str, problems: list[Problem]) -> AnyTransformation | None:
    if not isinstance(raw, dict):
        problems.append(not_allowed(at, raw, "an object with operator, input and params"))
        return None
    operator = raw.get("operator")
    kind = OPERATORS.get(operator) if isinstance(operator, str) else None
    if "operator" not in raw:
        problems.append(Problem(f"{at}.operator", f"missing. Allowed: {', '.join(OPERATORS)}."))
    elif kind is None:
        problems.append(unknown_word(f"{at}.operator", "operator", operator, OPERATORS))
    if kind is None:
        return None
    params = field_names(get_type_hints(kind)["params"])
    for field in raw:
        if field in params and field not in field_names(kind):
            problems.append(Problem(f"{at}.{field}", f"parameters stand in params: write {at}.params.{field}."))
            return None
    return convert(kind, raw, at, problems)


def _sinks(raw: object, problems: list[Problem]) -> list[str]:
    if not isinstance(raw, list) or not all(isinstance(name, str) for name in raw):
        problems.append(not_allowed("sinks", raw, "a list of names of transformations, outputs or sources"))
        return []
    for i, name in enumerate(raw):
        if name in raw[:i]:
            problems.append(Problem(f"sinks[{i}]", f"'{name}' is there twice."))
    return raw
