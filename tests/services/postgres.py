"""A PostgreSQL server from the system's package, ready for logical replication; it refuses to run as root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from penstock.testing.servers import HOST, Server, free_port

PASSWORD = "post-pass-word"
SETTINGS = {
    "listen_addresses": HOST,
    "wal_level": "logical",
    "max_wal_senders": 20,
    "max_replication_slots": 20,
    # Tests need no data after a power cut.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
}


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if found:
        return found[-1].parent
    beside = shutil.which("postgres")
    return Path(beside).parent if beside else None


def missing() -> str | None:
    """Say what is not installed; None: nothing."""
    programs = _programs()
    if programs is None or not (programs / "initdb").exists():
        return "needs postgresql (apt-get install postgresql)"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "needs setpriv: PostgreSQL does not run as root"
    return None


class Postgres(Server):
    """A PostgreSQL with a user ``penstock`` that has a password.

    Attributes
    ----------
    dsn : str
        Where it is, with user and password.
    """

    def __init__(self) -> None:
        super().__init__("postgres")
        programs = _programs()
        assert programs is not None
        as_user: list[str] = []
        if os.geteuid() == 0:
            user = "postgres" if _has_user("postgres") else "nobody"
            as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
            if user == "nobody":
                as_user = ["setpriv", "--reuid=nobody", "--clear-groups"]
            shutil.chown(self.directory, user)
        data, secret, port = self.directory / "data", self.directory / "secret", free_port()
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self.port = port
        self.dsn = f"postgresql://penstock:{PASSWORD}@{HOST}:{port}/postgres"
        made = [str(programs / "initdb"), "-D", str(data), "-U", "penstock", f"--pwfile={secret}"]
        made += ["-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([*as_user, *made], check=True, capture_output=True)
        settings = {**SETTINGS, "port": port, "unix_socket_directories": self.directory}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [*as_user, str(programs / "postgres"), "-D", str(data), *flags]
        # Fast shutdown: it does not wait for those who are connected.
        self.run(command, self._answers, signal.SIGINT)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def execute(self, *statements: str) -> list[tuple]:
        """Run statements, each in a transaction of its own; return the rows of the last one, if it has any."""
        import psycopg

        rows: list[tuple] = []
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
        return rows


def _has_user(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
