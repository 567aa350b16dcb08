"""What a suite has found, and what its parts share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, time_ns
from typing import TypeVar

from penstock.checks import check_interface
from penstock.errors import PenstockError
from penstock.types import Schema

Part = TypeVar("Part")
_LOOK_S = 0.005


@dataclass
class Conformance:
    """The checks that a connector has passed, and those that do not apply to it, with the reason.

    Attributes
    ----------
    kind : str
        Of the connector.
    passed : list of str
        Names of the checks.
    left_out : dict
        By check: why it was not made.
    """

    kind: str
    passed: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def check(self, name: str) -> Iterator[None]:
        """Make one check; what it raises names the connector and the check."""
        __tracebackhide__ = True
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{self.kind}: {name}: {error}") from None
        except Exception as error:
            raise AssertionError(f"{self.kind}: {name}: {type(error).__name__}: {error}") from error
        self.passed.append(name)


def sent(part: Part) -> Part:
    """The same as it arrives in another process: Spark sends it there."""
    from pyspark.cloudpickle import dumps, loads

    arrived: Part = loads(dumps(part))
    return arrived


def check_identity(part: object, kind: object, secrets: Iterable[str]) -> None:
    """Check what every connector says of itself."""
    check_interface(part, str(kind))
    assert isinstance(kind, str), f"kind is {kind!r}, not a word"
    assert kind, "kind is empty"
    assert " " not in kind, f"kind is {kind!r}, not one word"
    check_hidden(secrets, {"repr": repr(part), "str": str(part), "kind": kind})
    arrived = sent(part)
    assert type(arrived) is type(part), f"another process gets a {type(arrived).__name__}"
    check_hidden(secrets, {"repr in another process": repr(arrived)})


def check_hidden(secrets: Iterable[str], texts: dict[str, str]) -> None:
    """Check that no secret is in a text."""
    for secret in secrets:
        for where, text in texts.items():
            assert secret not in text, f"a secret is shown in {where}: use penstock.connectors.redacted"


def check_refused(call: Callable[[], object], secrets: Iterable[str]) -> None:
    """Check that something is refused with an error that users can read, and that shows no secret."""
    try:
        call()
    except PenstockError as error:
        text = str(error)
    else:
        raise AssertionError("it is not refused: raise a PenstockError, such as SourceFailed or SinkFailed")
    check_hidden(secrets, {"the error": text})
    assert "\n" not in text.strip(), f"the error has several lines: {text}"


def check_schema(schema: object) -> Schema:
    """Check that it is one."""
    assert isinstance(schema, Schema), f"schema is {schema!r}, not a Schema: Schema.parse(…) makes one"
    return schema


def now_us() -> int:
    """The clock."""
    return time_ns() // 1_000


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition, with a bound; say whether it has come true."""
    deadline_s = monotonic() + timeout_s
    while not condition():
        if monotonic() > deadline_s:
            return False
        threading.Event().wait(_LOOK_S)
    return True
