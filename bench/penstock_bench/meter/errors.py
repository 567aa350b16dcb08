"""Errors of the engines: an unknown one, one that cannot be set up, one that fails; the runner shows them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import PenstockError, nearest


class UnknownEngine(PenstockError):
    """An engine or a variant is named that does not exist."""

    code = "UNKNOWN_ENGINE"

    def __init__(self, *, given: str, what: str, available: Iterable[str]) -> None:
        names = list(available)
        super().__init__(
            f"there is no {what} '{given}'.", hint=f"Available: {', '.join(names) or '(none)'}.{nearest(given, names)}"
        )


class UnknownWorkload(PenstockError):
    """A workload is named that does not exist."""

    code = "UNKNOWN_WORKLOAD"

    def __init__(self, *, given: str, available: Iterable[str]) -> None:
        names = list(available)
        super().__init__(
            f"there is no workload '{given}', and no file of that name.",
            hint=f"Workloads by name: {', '.join(names)}.{nearest(given, names)}",
        )


class NotSupported(PenstockError):
    """An engine cannot run a workload, and says why."""

    code = "NOT_SUPPORTED"

    def __init__(self, *, engine: str, workload: str, reason: str) -> None:
        super().__init__(f"engine '{engine}' cannot run '{workload}': {reason}.")


class EnvironmentFailed(PenstockError):
    """The environment of an engine could not be made."""

    code = "ENGINE_ENVIRONMENT"

    def __init__(self, *, name: str, step: str, cause: str, path: str) -> None:
        super().__init__(
            f"the environment of engine '{name}' could not be made: {step} failed: {cause}.",
            hint=f"It belongs into {path}. Check that the package index can be reached and that the disk has room, "
            "then run the command again; or set PENSTOCK_ENGINES to a directory that can be written.",
        )


class EngineFailed(PenstockError):
    """An engine's program ended with an error or did not finish."""

    code = "ENGINE_FAILED"

    def __init__(self, *, engine: str, what: str, log: str) -> None:
        tail = "\n".join(log.strip().splitlines()[-LOG_LINES:])
        super().__init__(f"engine '{engine}' {what}.", hint=f"The end of its log:\n{tail}" if tail else "")


LOG_LINES = 25
"""Lines of a failed engine's log that are shown."""
