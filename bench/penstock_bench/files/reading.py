"""From bytes to plain values: JSON or YAML, without what either lets pass silently; for `load`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import yaml

from penstock_bench.files.problems import Problem, WorkloadRefused

FILE_BYTES_MAX = 10_000_000
YAML_ENDINGS = (".yaml", ".yml")
WANTED = "it must hold an object with sources, transformations and sinks: docs/workloads.md has an example."


def read_plain(path: Path) -> dict[str, Any]:
    """Return the object that a file holds: YAML where its name ends so, JSON otherwise."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = {FileNotFoundError: "it does not exist.", IsADirectoryError: "it is a directory."}
        _refuse(path, reason.get(type(error), f"it cannot be read: {error.strerror}."))
    if len(content) > FILE_BYTES_MAX:
        _refuse(path, f"it is larger than {FILE_BYTES_MAX:,} bytes.")
    is_yaml = path.suffix.lower() in YAML_ENDINGS
    try:
        text = content.decode("utf-8-sig")
        if not text.strip():
            _refuse(path, f"it is empty; {WANTED}")
        if is_yaml:
            raw = yaml.load(text, _Loader)
        else:
            raw = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError:
        _refuse(path, "it is not UTF-8 text.")
    except json.JSONDecodeError as error:
        other = " The name of a file in YAML ends with .yaml or .yml." if path.suffix.lower() != ".json" else ""
        # What begins with neither an object nor a list is no JSON that went wrong somewhere.
        other = other or (" If it is YAML, call it .yaml or .yml." if text.lstrip()[0] not in "{[" else "")
        _refuse(path, f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}.{other}")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        _refuse(path, f"{where}not valid YAML: {error.problem or error.context}.")
    except yaml.YAMLError as error:
        _refuse(path, f"not valid YAML: {' '.join(str(error).split())}.")
    except RecursionError:
        _refuse(path, "it is nested too deeply.")
    except _Doubled as error:
        _refuse(path, str(error))
    if not isinstance(raw, dict):
        _refuse(path, WANTED)
    plain: dict[str, Any] = _whole(raw)
    return plain


def _refuse(path: Path, what: str) -> NoReturn:
    raise WorkloadRefused(path=str(path), problems=[Problem("", what)]) from None


class _Doubled(Exception):
    """A name that stands twice in one object, or a number that is none."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Doubled(f"'{next(name for name in names if names.count(name) > 1)}' stands twice in one object.")
    return made


def _constant(word: str) -> object:
    raise _Doubled(f"{word} is not a number.")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML's plain values; of two equal names in a map the second would win silently."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise _Doubled(f"'{name}' stands twice in one map (line {node.start_mark.line + 1}).")
        made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return made


def _whole(value: Any) -> Any:
    """Write 2.0 as 2, as JSON Schema has it: tools that know one kind of number only write whole ones so."""
    if isinstance(value, dict):
        return {str(key): _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
