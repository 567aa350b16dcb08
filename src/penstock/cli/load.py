"""Reads a user's file for its pipelines; `penstock run` and `penstock explain` use it. Starts nothing."""

from __future__ import annotations

import os
import re
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from penstock.cli.outcome import UserFault
from penstock.connectors.base import Sink
from penstock.errors import PenstockError, PipelineFileRefused
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.plan import Plan
from penstock.runtime.capture import Captured, capturing
from penstock.runtime.job import plan_of

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


@dataclass(frozen=True)
class Loaded:
    """What a file wants to run.

    Attributes
    ----------
    pipelines : tuple of Pipeline
        Those given to the file's first `run` or `start`, else all of its module-level ones.
    dead_letters, duration, options
        What the file itself gave to `run` or `start`.
    """

    pipelines: tuple[Pipeline, ...]
    dead_letters: Sink | None = None
    duration: str | float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def plan(self, *, dead_letters: Sink | None = None, **overrides: Any) -> Plan:
        """Check and lay out; overrides that are not None come before the file's own options."""
        given = {name: value for name, value in overrides.items() if value is not None}
        return plan_of(*self.pipelines, dead_letters=dead_letters or self.dead_letters, **{**self.options, **given})


def load(path: Path) -> Loaded:
    """Run a file up to its first `ps.run` or `ps.start`, or to its end, and collect its pipelines."""
    code = _compile(path)
    module = ModuleType(f"penstock_file_{path.stem}")
    module.__file__ = str(path)
    _make_importable(path, module)
    try:
        with capturing():
            exec(code, module.__dict__)
    except Captured as captured:
        options = {"name": _job_name(path), **captured.options}
        return Loaded(captured.pipelines, captured.dead_letters, captured.duration, options)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _fault(path, error) from error
    found = {id(value): value for value in vars(module).values() if isinstance(value, Pipeline)}
    if not found:
        raise PipelineFileRefused(
            f"'{path}' defines no pipeline.",
            hint="End a stream with .to(…) and keep the result in a module-level variable, or give it to ps.run(…).",
        )
    return Loaded(tuple(found.values()), options={"name": _job_name(path)})


def _compile(path: Path) -> CodeType:
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        reason = {FileNotFoundError: "does not exist", IsADirectoryError: "is a directory"}.get(type(error))
        raise PipelineFileRefused(
            f"'{path}' {reason or f'cannot be read: {error.strerror}'}.",
            hint="Give the path of a Python file that defines a pipeline.",
        ) from None
    except (SyntaxError, ValueError) as error:
        shown = "".join(traceback.format_exception_only(error)).rstrip()
        refused = PipelineFileRefused(f"'{path}' is not valid Python.", hint="Correct the line shown above.")
        raise UserFault(shown, refused) from None


def _make_importable(path: Path, module: ModuleType) -> None:
    """Let the file import its neighbours, here and on embedded workers, as `python FILE.py` would."""
    from pyspark import cloudpickle

    directory = str(path.resolve().parent)
    sys.path.insert(0, directory)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [directory, os.environ.get("PYTHONPATH")]))
    sys.modules[module.__name__] = module
    # Workers cannot import the file itself under this name: its functions travel whole.
    cloudpickle.register_pickle_by_value(module)


def _fault(path: Path, error: BaseException) -> UserFault:
    """The user's part of the traceback, and one error that says what to do."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((i for i, each in enumerate(frames) if each.filename == str(path)), 0)
    own = [each for each in frames[first:] if not each.filename.startswith(_PACKAGE)]
    shown = "Traceback (most recent call last):\n" + "".join(traceback.format_list(own))
    if isinstance(error, PenstockError):
        return UserFault(shown, error)
    refused = PipelineFileRefused(
        f"'{path}' ended with {type(error).__name__} before its pipeline was complete.",
        hint="Correct the line shown above.",
    )
    return UserFault(shown + "".join(traceback.format_exception_only(error)), refused)


def _job_name(path: Path) -> str:
    """The file's name, as far as it can name a job."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).strip("-._")[:64]
    return name or "job"
