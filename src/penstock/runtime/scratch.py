"""Snapshots of a job without a checkpoint, where workers share no disk with the driver: the driver keeps them.

The driver has a socket of its own for them, and a thread that reads and writes files: its loop knows nothing of it.
Only who holds the job's key is answered, and nothing is ever unpickled. A worker that can see the driver's directory
uses that instead.

=========================================  ==============================================================
a worker asks                              the driver answers
=========================================  ==============================================================
``put``, name, token, offset, last, data   ``ok``; with the last piece the file is there, whole
``get``, name, offset                      ``ok``, the size of the file, a piece of it
anything else, or too much                 ``no``, why
=========================================  ==============================================================

A piece may be sent again: it is written to the same place.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import zmq
from zmq.auth.thread import ThreadAuthenticator

from penstock.errors import CheckpointDamaged, CheckpointUnavailable
from penstock.pipeline.options import Options
from penstock.protocol import messages as m
from penstock.runtime.transport import AllowList, Keys

PIECE_BYTES = 4 << 20
SCRATCH_BYTES_MAX = 8 << 30
"""What the driver keeps for its workers; a job with more state needs a checkpoint directory, or a store."""
_ANSWER_MS = 10_000
_TRIES = 3
_NAME = re.compile(r"[A-Za-z0-9-]{1,200}")


def shares_nothing(options: Options, master: str) -> bool:
    """Whether the driver should be ready to keep snapshots: the user named no place, and workers may be elsewhere."""
    return not options.durable and not master.startswith("local")


class ScratchServer:
    """Keeps the workers' snapshots in the driver's directory.

    Parameters
    ----------
    directory : Path
        Where the driver's own store of snapshots is, which also removes what nobody needs.
    """

    def __init__(self, keys: Keys, host: str, directory: Path) -> None:
        self._directory = directory
        self._context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain="*", credentials_provider=AllowList(keys.public))
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._socket.curve_publickey, self._socket.curve_secretkey = keys.public, keys.secret
        self._socket.curve_server = True
        self._socket.maxmsgsize = 2 * PIECE_BYTES
        self._socket.linger = 0
        self.endpoint = f"tcp://{host}:{self._socket.bind_to_random_port(f'tcp://{host}')}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-scratch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            if not self._socket.poll(200):
                continue
            frames = self._socket.recv_multipart()
            asker, request = frames[:2], frames[2:]
            try:
                answer = [b"ok", *self._answer(request)]
            except (OSError, ValueError) as error:
                answer = [b"no", str(error).encode()]
            self._socket.send_multipart([*asker, *answer])
        self._socket.close()

    def _answer(self, request: Sequence[bytes]) -> Sequence[bytes]:
        match request:
            case [b"put", name, token, offset, last, data]:
                self._put(self._path(name), self._path(token).name, int(offset), last == b"1", data)
                return ()
            case [b"get", name, offset]:
                with self._path(name).open("rb") as file:
                    size = file.seek(0, 2)
                    file.seek(int(offset))
                    return [str(size).encode(), file.read(PIECE_BYTES)]
        raise ValueError("nothing that can be asked for")

    def _path(self, name: bytes) -> Path:
        text = name.decode("ascii", "replace")
        if not _NAME.fullmatch(text):
            raise ValueError("no name of a snapshot")
        return self._directory / text

    def _put(self, path: Path, token: str, offset: int, last: bool, data: bytes) -> None:
        if not offset and self._held_bytes() > SCRATCH_BYTES_MAX:
            limit = f"{SCRATCH_BYTES_MAX >> 30} GB"
            raise ValueError(f"the driver keeps at most {limit} of state for its workers; give checkpoint= a place")
        unfinished = path.with_name(f"{path.name}-{token}.tmp")
        with unfinished.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)
        if last:
            unfinished.replace(path)

    def _held_bytes(self) -> int:
        held = 0
        with os.scandir(self._directory) as found:
            for each in found:
                try:
                    held += each.stat().st_size
                except FileNotFoundError:  # it has just been cleared away
                    continue
        return held

    def close(self) -> None:
        """Answer nobody any more."""
        self._over.set()
        self._thread.join()
        self._authenticator.stop()
        self._context.destroy(linger=0)


class ScratchClient:
    """A worker's snapshots at the driver; takes the place of a `CheckpointStore` there."""

    def __init__(self, keys: Keys, endpoint: str) -> None:
        self._keys = keys
        self._endpoint = endpoint
        self._context = zmq.Context()
        self._own = threading.local()

    def wait_for(self, outage_s: float) -> None:
        """Nothing: without its driver a worker ends anyway."""

    def write_snapshot(self, name: str, data: bytes) -> int:
        """Have the driver keep a snapshot, and return its checksum."""
        token = os.urandom(8).hex().encode()
        for at in range(0, max(1, len(data)), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            last = b"1" if at + len(piece) >= len(data) else b"0"
            self._ask([b"put", name.encode(), token, str(at).encode(), last, piece])
        return crc32(data)

    def read_snapshot(self, stored: m.Stored) -> bytes:
        """Read a snapshot back, or raise CheckpointDamaged."""
        pieces: list[bytes] = []
        size, got = 1, 0
        while got < size:
            told, piece = self._ask([b"get", stored.name.encode(), str(got).encode()])
            size = int(told)
            if not piece:
                break
            pieces.append(piece)
            got += len(piece)
        data = b"".join(pieces)
        if crc32(data) != stored.crc:
            raise CheckpointDamaged(path=f"{self._endpoint}/{stored.name}", cause="its checksum is wrong")
        return data

    def fetch(self, name: str, to: Path) -> None:
        """Write a file of the driver's into one here, piece by piece."""
        with to.open("wb") as file:
            size = 1
            while file.tell() < size:
                told, piece = self._ask([b"get", name.encode(), str(file.tell()).encode()])
                size = int(told)
                if not piece:
                    break
                file.write(piece)

    def _ask(self, request: list[bytes]) -> list[bytes]:
        for _ in range(_TRIES):
            socket = self._socket()
            socket.send_multipart(request)
            if socket.poll(_ANSWER_MS):
                word, *answer = socket.recv_multipart()
                if word == b"ok":
                    return answer
                raise CheckpointUnavailable(place="the driver", cause=answer[0].decode("utf-8", "replace"))
            # A socket that waits for an answer asks nothing else: the next try has another one.
            socket.close(linger=0)
            self._own.socket = None
        raise CheckpointUnavailable(place="the driver", cause="it does not answer")

    def _socket(self) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] | None = getattr(self._own, "socket", None)
        if socket is None:
            socket = self._own.socket = self._context.socket(zmq.REQ)
            socket.curve_publickey, socket.curve_secretkey = self._keys.public, self._keys.secret
            socket.curve_serverkey = self._keys.public
            socket.linger = 0
            socket.connect(self._endpoint)
        return socket

    def close(self) -> None:
        """Give the connections up."""
        self._context.destroy(linger=0)
