"""How commands end: exit codes, and errors told in one place, without tracebacks of Penstock's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from enum import IntEnum
from pathlib import Path

import msgspec
import typer

from penstock.errors import InvalidOption, PenstockError
from penstock.redaction import redacted


class Exit(IntEnum):
    """Exit codes, as scripts may rely on them."""

    FAILED = 1
    """The job failed, or its result is not exact."""
    REFUSED = 2
    """What was given cannot run; nothing was started."""
    INTERRUPTED = 130
    """Ctrl-C ended it before it was done."""


class UserFault(Exception):
    """An error in the user's own code: Penstock's word on it is shown first, the user's traceback below."""

    def __init__(self, shown: str, error: PenstockError) -> None:
        super().__init__(str(error))
        self.shown = shown
        self.error = error


@contextmanager
def told(code: Exit) -> Iterator[None]:
    """Turn an error inside into one message on standard error and an exit code; PENSTOCK_DEBUG=1 lets it through."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        _tell("interrupted")
        raise typer.Exit(Exit.INTERRUPTED) from None
    except PenstockError as error:
        if _debugging():
            raise
        _tell(str(error))
        # What was given is wrong, whenever that is noticed: an engine may read its options late.
        raise typer.Exit(Exit.REFUSED if isinstance(error, InvalidOption) else code) from None
    except UserFault as fault:
        if _debugging():
            raise
        _tell(f"{fault.error}\n{fault.shown.rstrip()}")
        raise typer.Exit(code) from None
    except Exception as error:
        if _debugging():
            raise
        _tell(f"internal error: {type(error).__name__}: {error}\nA fault of Penstock; PENSTOCK_DEBUG=1 shows where.")
        raise typer.Exit(Exit.FAILED) from None


def _debugging() -> bool:
    return os.environ.get("PENSTOCK_DEBUG", "") not in ("", "0")


def _tell(text: str) -> None:
    print(redacted(text), file=sys.stderr, flush=True)


STANDARD_OUTPUT = Path("-")


class JsonOut:
    """The file that `--json` names, ``-`` for standard output: proved writable before the start, written at the end."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is None or path == STANDARD_OUTPUT:
            return
        self._new = not path.exists()
        try:
            path.open("ab").close()
        except OSError as error:
            raise InvalidOption(
                option="--json", given=str(path), allowed=f"a file that can be written ({error.strerror})"
            ) from None
        if self._new:
            path.unlink()

    @property
    def standard(self) -> bool:
        """Whether it is standard output: what people read must go elsewhere then."""
        return self._path == STANDARD_OUTPUT

    def aside(self) -> AbstractContextManager[object]:
        """Send what anybody prints inside to standard error, if standard output is for the figures alone."""
        return redirect_stdout(sys.stderr) if self.standard else nullcontext()

    def keep(self, figures: object) -> None:
        """Write what there is so far, so that it outlives an interruption; standard output gets the end only."""
        if not self.standard:
            self.write(figures)

    def write(self, figures: object) -> None:
        """Write the figures as JSON, if a file was named."""
        text = msgspec.json.format(msgspec.json.encode(figures), indent=2).decode() + "\n"
        if self.standard:
            typer.echo(text, nl=False)
        elif self._path is not None:
            try:
                self._path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise PenstockError(f"'{self._path}' could not be written: {error.strerror}.") from error
