"""Ports of this machine: taken when they are free, waited for while a run before this one may still hold them."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import InvalidOption, PortOccupied

_LOOK_S = 0.05
Made = TypeVar("Made")


def family_of(host: str) -> socket.AddressFamily:
    """Which kind of address it is."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def bound(bind: Callable[[], Made], address: tuple[str, int], wait_s: float) -> Made:
    """Return what ``bind`` does at an address, as soon as that is free.

    Raises
    ------
    PortOccupied
        Where it is not free within ``wait_s``.
    InvalidOption
        Where it will never be: it is no address of this machine, or not for this user.
    """
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            return bind()
        except OSError as error:
            if error.errno == errno.EACCES:
                raise InvalidOption(
                    option="port", given=address[1], allowed="one that this user may listen on"
                ) from None
            if error.errno != errno.EADDRINUSE:
                raise InvalidOption(option="host", given=address[0], allowed="an address of this machine") from None
            if time.monotonic() >= deadline_s:
                raise PortOccupied(address=f"{address[0]}:{address[1]}") from None
        time.sleep(_LOOK_S)


def check_free(address: tuple[str, int], kind: socket.SocketKind, wait_s: float) -> None:
    """Refuse a port that is taken; another process of this machine will listen there."""

    def bind() -> None:
        with socket.socket(family_of(address[0]), kind) as probe:
            if kind is socket.SOCK_STREAM:
                # As a server does: connections of the last one that are not over yet do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)

    bound(bind, address, wait_s)
