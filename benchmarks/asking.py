"""What the scripts beside this one are asked for on the command line; ``--help`` says what they measure."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence


def parser(told: str | None) -> ArgumentParser:
    """A command line whose help is what a script says of itself."""
    return ArgumentParser(description=told, formatter_class=RawDescriptionHelpFormatter)


def numbers(told: str | None, **usual: float) -> list[float]:
    """Numbers in a row, of which any at the end may be left out; whole ones where the usual one is.

    >>> times, seconds = numbers(__doc__, times=50, seconds=20.0)
    """
    found = parser(told)
    for name, value in usual.items():
        found.add_argument(name, nargs="?", type=type(value), default=value, help=f"usually {value:,}")
    return list(vars(found.parse_args()).values())


def words(told: str | None, known: Sequence[str], seconds: int, usual: Sequence[str] = ()) -> tuple[list[str], int]:
    """Any of some words, and for how many seconds each is measured; without any of them the usual ones, or all."""
    found = parser(told)
    usually = f"usually {' '.join(usual or known)}, {seconds} s each"
    found.add_argument("asked", nargs="*", metavar="WORD|SECONDS", help=f"{', '.join(known)}, or a number; {usually}")
    given = found.parse_args().asked
    unknown = [each for each in given if each not in known and not each.isdigit()]
    if unknown:
        found.error(f"'{unknown[0]}' is none of: {', '.join(known)}")
    times = [int(each) for each in given if each.isdigit()]
    return [each for each in given if each in known] or list(usual or known), times[-1] if times else seconds
