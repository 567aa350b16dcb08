"""Where a process of a job listens, and where the others find it: behind NAT and in containers these differ."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

import msgspec
import zmq

from penstock.errors import InvalidOption, PortOccupied
from penstock.pipeline.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"


class Address(msgspec.Struct, frozen=True):
    """Where a process listens.

    Attributes
    ----------
    host : str
        What others connect to.
    bind : str
        The address of this machine that it listens at, where that is another one.
    ports : tuple of int
        First and last of the ports that it may take; (0, 0): any free one.
    """

    host: str
    bind: str = ""
    ports: tuple[int, int] = (0, 0)

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine can connect to it."""
        return self.host in (_LOOPBACK, "localhost", "::1")

    def take(self, inbox: zmq.Socket[bytes], port: int = 0) -> str:
        """Have a socket listen here; return what others connect to."""
        at, (first, last) = f"tcp://{self.bind or self.host}", self.ports
        try:
            if port:
                inbox.bind(f"{at}:{port}")
            elif first:
                # Each port is tried some ten times on average before it is given up.
                port = inbox.bind_to_random_port(at, first, last + 1, max_tries=10 * (last - first + 1))
            else:
                port = inbox.bind_to_random_port(at)
        except (zmq.ZMQError, zmq.ZMQBindError) as error:
            if getattr(error, "errno", None) == errno.EADDRNOTAVAIL:
                allowed = "an address of this machine, such as 0.0.0.0"
                raise InvalidOption(option="bind_address", given=self.bind or self.host, allowed=allowed) from None
            raise PortOccupied(address=f"{self.bind or self.host}:{port or f'{first}-{last}'}") from None
        return f"tcp://{self.host}:{port}"


def driver_place(session: SparkSession, options: Options) -> Address:
    """Where the driver listens: for this machine's processes only, unless there are others."""
    if session.sparkContext.master.startswith("local"):
        return Address(_LOOPBACK)
    known = session.conf.get("spark.driver.host") or _LOOPBACK
    return Address(options.driver_address or socket.gethostbyname(known), options.bind_address, options.ports)


def spark_settings(options: Options) -> dict[str, str]:
    """What Spark's own driver is told, where the user has said something about addresses."""
    settings = {}
    if options.driver_address:
        settings["spark.driver.host"] = options.driver_address
    if options.bind_address:
        settings["spark.driver.bindAddress"] = options.bind_address
    if options.ports != (0, 0):
        first, last = options.ports
        settings |= {"spark.driver.port": str(first), "spark.driver.blockManager.port": str(first)}
        settings |= {"spark.blockManager.port": str(first), "spark.port.maxRetries": str(last - first)}
    return settings
