"""Metrics to InfluxDB in line protocol, over the write call that versions 1 and 2 both have.

The protocol is three rules of escaping, and the call is one POST: a client library would bring more code than it saves.
"""

from __future__ import annotations

import base64
import http.client
import os
import re
import ssl
from collections.abc import Mapping
from urllib.parse import urlencode

from penstock.control.changes import Advice, ChangeReport
from penstock.control.rescaling import MoveReport
from penstock.control.shifting import ShiftReport
from penstock.errors import InvalidOption
from penstock.pipeline.outlets import InfluxOutlet
from penstock.runtime.metrics_out.catalogue import MOVE, SHIFT, SWITCH
from penstock.runtime.metrics_out.feeder import OutletFailed
from penstock.runtime.metrics_out.samples import Snapshot

TOKEN_VARIABLE = "PENSTOCK_INFLUX_TOKEN"
USER_VARIABLE = "PENSTOCK_INFLUX_USER"
PASSWORD_VARIABLE = "PENSTOCK_INFLUX_PASSWORD"
ANSWER_S_MAX = 2.0
ANSWER_BYTES_MAX = 4_096
CAUSE_CHARACTERS_MAX = 200
_TAG = str.maketrans({",": "\\,", "=": "\\=", " ": "\\ ", "\n": "\\ ", "\r": "\\ "})


def lines_of(snapshot: Snapshot) -> bytes:
    """Render a snapshot in line protocol, with times in microseconds."""
    tags = snapshot.tags
    common = {"job": tags.job, "run": tags.run, "engine": tags.engine, "version": tags.version}
    lines = []
    for point in snapshot.points:
        if point.fields:
            fields = {name: repr(float(value)) for name, value in point.fields.items()}
            lines.append(_line(point.measurement, {**common, **point.tags}, fields, snapshot.at_us))
    told: list[ChangeReport | Advice] = [*snapshot.switches, *snapshot.advice]
    for each in told:
        fields = {}
        if isinstance(each, ChangeReport):
            fields = {
                "pause_seconds": repr(each.pause_ms / 1e3),
                "total_seconds": repr(each.total_ms / 1e3),
                "carried_records": repr(float(each.carried_records)),
            }
        fields |= {"operations": _text(", ".join(each.operations)), "reason": _text(each.reason)}
        switched = {**common, "to": each.to, "advised": str(isinstance(each, Advice)).lower()}
        lines.append(_line(SWITCH, switched, fields, snapshot.began_us + int(each.at_s * 1e6)))
    for move in snapshot.moves:
        fields = {"number": repr(float(move.column)), **_transferred(move)}
        lines.append(_line(MOVE, common, fields, snapshot.began_us + int(move.at_s * 1e6)))
    for shift in snapshot.shifts:
        fields = {"groups": repr(float(shift.groups)), **_transferred(shift)}
        shifted = {**common, "operation": shift.operation}
        lines.append(_line(SHIFT, shifted, fields, snapshot.began_us + int(shift.at_s * 1e6)))
    return "\n".join([*lines, ""]).encode()


def _transferred(done: MoveReport | ShiftReport) -> dict[str, str]:
    """What moves and shifts have in common: from where, to where, and what it cost."""
    return {
        "old": repr(float(done.old)),
        "new": repr(float(done.new)),
        "pause_seconds": repr(done.pause_ms / 1e3),
        "total_seconds": repr(done.total_ms / 1e3),
        "loaded_bytes": repr(float(done.loaded_bytes)),
        "reason": _text(done.reason),
    }


def _line(measurement: str, tags: Mapping[str, str], fields: Mapping[str, str], at_us: int) -> str:
    # A tag must not be empty; a backslash at its end would escape what follows.
    shown = "".join(f",{name}={_tag(value)}" for name, value in sorted(tags.items()) if value)
    return f"penstock_{measurement}{shown} {','.join(f'{name}={value}' for name, value in fields.items())} {at_us}"


def _tag(value: str) -> str:
    escaped = value.translate(_TAG)
    return escaped + "\\ " if escaped.endswith("\\") else escaped


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def credentials(environment: Mapping[str, str]) -> str:
    """Return the value of the Authorization header; empty if no credentials are set."""
    token, user = environment.get(TOKEN_VARIABLE, ""), environment.get(USER_VARIABLE, "")
    for variable in (TOKEN_VARIABLE, USER_VARIABLE, PASSWORD_VARIABLE):
        if not re.fullmatch(r"[\x20-\x7e]*", environment.get(variable, "")):
            raise InvalidOption(option=variable, given="…", allowed="printable ASCII characters")
    if token:
        return f"Token {token}"
    if user:
        pair = f"{user}:{environment.get(PASSWORD_VARIABLE, '')}"
        return "Basic " + base64.b64encode(pair.encode()).decode()
    return ""


class InfluxWriter:
    """Sends snapshots to one database. Follows no redirection: credentials go to the named server alone."""

    def __init__(self, outlet: InfluxOutlet, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        if outlet.secure:
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                outlet.host, outlet.port, timeout=ANSWER_S_MAX, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(outlet.host, outlet.port, timeout=ANSWER_S_MAX)
        self._target = f"{outlet.prefix}/write?{urlencode({'db': outlet.database, 'precision': 'u'})}"
        self._headers = {"Content-Type": "text/plain; charset=utf-8"}
        authorization = credentials(environment)
        self._secrets = [
            secret for name in (TOKEN_VARIABLE, PASSWORD_VARIABLE) if (secret := environment.get(name, ""))
        ]
        if authorization:
            self._headers["Authorization"] = authorization
            self._secrets.append(authorization.split(" ", 1)[1])

    def write(self, snapshot: Snapshot) -> None:
        """Send one snapshot."""
        try:
            self._connection.request("POST", self._target, lines_of(snapshot), self._headers)
            answer = self._connection.getresponse()
            said = answer.read(ANSWER_BYTES_MAX)
            if not answer.isclosed():
                self._connection.close()  # it has more to say than is wanted
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise OutletFailed(self._without_secrets(str(error) or type(error).__name__), again=True) from None
        if answer.status >= 300:
            cause = self._without_secrets(f"HTTP {answer.status} {said.decode(errors='replace')}")
            # What a server cannot take now it may take later; what it refuses it will refuse again.
            raise OutletFailed(cause, again=answer.status >= 500 or answer.status == 429)

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return " ".join(text.split())[:CAUSE_CHARACTERS_MAX]

    def close(self) -> None:
        """Let the connection go."""
        self._connection.close()
