"""A schema registry of a few lines: subjects and numbers over HTTP, with a password if wanted."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class RegistryServer(ThreadingHTTPServer):
    """Keeps schemas in memory; ``login`` is what it asks for, ``answers`` are statuses it gives first."""

    def __init__(self, login: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.login = login
        self.answers: list[int] = []
        self.schemas: list[dict[str, str]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.url = f"http://{login}{'@' if login else ''}127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def register(self, subject: str, schema: dict[str, str]) -> int:
        """Register a schema, or find it."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def do_GET(self) -> None:
        if not self._allowed():
            return
        match self.path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) <= len(self.server.schemas):
                self._answer(200, self.server.schemas[int(number) - 1])
            case ["subjects", subject, "versions", "latest"] if unquote(subject) in self.server.subjects:
                number = self.server.subjects[unquote(subject)][-1]
                self._answer(200, {"id": number, "version": 1, **self.server.schemas[number - 1]})
            case _:
                self._answer(404, {"error_code": 40401, "message": "not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._allowed():
            return
        _, subject, _ = self.path.strip("/").split("/")
        schema = {"schema": body["schema"]}
        if body.get("schemaType", "AVRO") != "AVRO":
            schema["schemaType"] = body["schemaType"]
        self._answer(200, {"id": self.server.register(unquote(subject), schema)})

    def _allowed(self) -> bool:
        self.server.requests.append(self.path)
        if self.server.answers:
            self._answer(self.server.answers.pop(0), {"message": "told to"})
            return False
        wanted = "Basic " + base64.b64encode(self.server.login.encode()).decode()
        if self.server.login and self.headers["Authorization"] != wanted:
            given = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            self._answer(401, {"message": f"Unauthorized: {given}"})
            return False
        return True

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None: ...
