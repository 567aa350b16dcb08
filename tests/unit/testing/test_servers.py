"""Ports for servers of tests: nobody else gets one, though nothing listens there yet."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.testing import servers

FINDS_ONE = """
import sys
from penstock.testing import servers
print(servers.free_port(), flush=True)
sys.stdin.read()
"""


def test_ports_are_found_once() -> None:
    assert len({servers.free_port() for _ in range(20)} | set(servers.free_ports(20))) == 40


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names for it")
def test_a_port_that_another_process_has_found_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", FINDS_ONE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        monkeypatch.setattr(servers, "PORTS", [theirs] * 100 + list(range(theirs + 1, theirs + 100)))
        assert theirs not in servers.free_ports(10)
        other.communicate()
