"""An object store for tests: an HTTP server that holds objects, slow and sometimes away, and its fsspec file system.

Processes find the file system by its entry point, if this directory is on their path: ``slow://127.0.0.1:PORT/bucket``.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFile


class StoreServer:
    """Holds objects in memory, for whoever asks; every call takes ``delay_s``."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.objects: dict[str, bytes] = {}
        self.calls: Counter[str] = Counter()
        self.is_away = False
        self.lock = threading.Lock()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                status, body = store.handle(self.command, unquote(self.path), self.headers, self.rfile.read(size))
                with suppress(ConnectionError):  # whoever asked was killed
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            do_GET = do_PUT = do_DELETE = do_POST = _answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"slow://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def handle(self, command: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes]:
        time.sleep(self.delay_s)
        with self.lock:
            self.calls[command] += 1
            if self.is_away:
                return 503, b""
            if command == "PUT":
                if headers.get("If-None-Match") == "*" and path in self.objects:
                    return 412, b""
                if (source := headers.get("X-Copy-Source")) is not None:
                    if (source := unquote(source)) not in self.objects:
                        return 404, b""
                    body = self.objects[source]
                self.objects[path] = body
                return 200, b""
            if command == "DELETE":
                return (200, b"") if self.objects.pop(path, None) is not None else (404, b"")
            if command == "POST":  # a list of what is below a prefix
                prefix = path.rstrip("/") + "/"
                found = {name: len(data) for name, data in self.objects.items() if name.startswith(prefix)}
                return 200, json.dumps(found).encode()
            return (200, self.objects[path]) if path in self.objects else (404, b"")

    def names(self, below: str) -> list[str]:
        """Names of the objects below a path."""
        with self.lock:
            return sorted(name.removeprefix(below) for name in self.objects if name.startswith(below))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class SlowStore(AbstractFileSystem):
    """Talks to a `StoreServer`."""

    protocol = "slow"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("slow://").rstrip("/")

    def _call(self, command: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        host, _, name = self._strip_protocol(path).partition("/")
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        connection = HTTPConnection(host, timeout=30)
        try:
            connection.request(command, "/" + quote(name), body, named)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status == 404:
            raise FileNotFoundError(path)
        if answer.status == 412:
            raise FileExistsError(path)
        if answer.status != 200:
            raise OSError(f"the store says {answer.status}")
        return data

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._call("PUT", path, value, **({"If_None_Match": "*"} if mode == "create" else {}))

    def cat_file(self, path: str, *_: Any, **__: Any) -> bytes:
        return self._call("GET", path)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        source = "/" + self._strip_protocol(path1).partition("/")[2]
        self._call("PUT", path2, X_Copy_Source=quote(source))

    def rm_file(self, path: str) -> None:
        self._call("DELETE", path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        root = self._strip_protocol(path)
        name = root.partition("/")[2]
        below = json.loads(self._call("POST", root))
        found = {}
        for each, size in below.items():
            first, _, rest = each.removeprefix("/" + name + "/" if name else "/").partition("/")
            kind = "directory" if rest else "file"
            found[f"{root}/{first}"] = {"name": f"{root}/{first}", "size": 0 if rest else size, "type": kind}
        if not found:
            raise FileNotFoundError(path)
        return list(found.values()) if detail else list(found)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode == "rb":
            return MemoryFile(None, path, self.cat_file(path))
        store = self

        class Upload(MemoryFile):
            def close(self) -> None:
                store.pipe_file(path, self.getvalue())

        return Upload(None, path)
