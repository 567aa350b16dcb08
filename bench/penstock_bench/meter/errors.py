"""Errors of the engines: an unknown one, one that cannot be set up, one that fails; the runner shows them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import PenstockError, nearest


def _names(words: str, available: Iterable[str], given: str) -> str:
    names = list(available)
    return f"{words}: {', '.join(names) or '(none)'}.{nearest(given, names)}"


class UnknownEngine(PenstockError):
    code = "UNKNOWN_ENGINE"

    def __init__(self, *, given: str, what: str, available: Iterable[str]) -> None:
        super().__init__(f"there is no {what} '{given}'.", hint=_names("Available", available, given))


class UnknownWorkload(PenstockError):
    code = "UNKNOWN_WORKLOAD"

    def __init__(self, *, given: str, available: Iterable[str]) -> None:
        message = f"there is no workload '{given}', and no file of that name."
        super().__init__(message, hint=_names("Workloads by name", available, given))


class NotSupported(PenstockError):
    code = "NOT_SUPPORTED"

    def __init__(self, *, engine: str, workload: str, reason: str) -> None:
        super().__init__(f"engine '{engine}' cannot run '{workload}': {reason}.")


class EnvironmentFailed(PenstockError):
    code = "ENGINE_ENVIRONMENT"

    def __init__(self, *, name: str, step: str, cause: str, path: str) -> None:
        super().__init__(
            f"the environment of engine '{name}' could not be made: {step} failed: {cause}.",
            hint=f"It belongs into {path}. Check that the package index can be reached and that the disk has room, "
            "then run the command again; or set PENSTOCK_ENGINES to a directory that can be written.",
        )


class EngineFailed(PenstockError):
    code = "ENGINE_FAILED"

    def __init__(self, *, engine: str, what: str, log: str) -> None:
        tail = "\n".join(log.strip().splitlines()[-LOG_LINES:])
        super().__init__(f"engine '{engine}' {what}.", hint=f"The end of its log:\n{tail}" if tail else "")


LOG_LINES = 25
"""Lines of a failed engine's log that are shown."""
