"""PgBouncer in transaction mode between services of tests and their PostgreSQL, as docs/configuration.md has it.

With HOLDFAST_TEST_PGBOUNCER=1 every service that a test starts on the tests' PostgreSQL reaches it by one.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import asyncpg
from pydantic import SecretStr

from app.settings import Settings
from tests.processes import until
from tests.programs import free_port, given_away, program

ASKED = os.environ.get("HOLDFAST_TEST_PGBOUNCER") == "1"
PAGE = (Path(__file__).parents[1] / "docs/configuration.md").read_text()
POOL_SIZE = 2
URL, PREPARED = "HOLDFAST_DATABASE_URL", "HOLDFAST_PREPARED_STATEMENTS"
INI = """\
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
logfile = {log}
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 5000
; The next statement goes by another connection than the last one, wherever there are two.
server_round_robin = 1
{ignored}
"""


class PgBouncer:
    """In front of the server of this URL, all its databases; between start() and stop()."""

    def __init__(self, server_url: str) -> None:
        self._behind = urlsplit(server_url)
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def start(self) -> None:
        users, ini, self.log = (self._folder / name for name in ("users", "ini", "log"))
        [ignored] = re.findall(r"^ +(ignore_startup_parameters = .+)$", PAGE, re.MULTILINE)
        users.write_text(f'"{self._behind.username}" "{unquote(self._behind.password or "")}"\n')
        host, port = _place(self._behind)
        ini.write_text(
            INI.format(host=host, port=port, own=self.port, users=users, log=self.log, size=POOL_SIZE, ignored=ignored)
        )
        account = given_away(self._folder)
        command = [program("pgbouncer"), "-q", *(["-u", account] if account else []), str(ini)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until(self._listens, 30, or_show=lambda: self.log.exists() and self.log.read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def through(self, url: str) -> str:
        """The same database by this way; a URL that leads elsewhere as it is."""
        parts = urlsplit(url)
        if _place(parts) != _place(self._behind):
            return url
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{self.port}"))

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.exists() and self.log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


_between: PgBouncer | None = None


@contextmanager
def between(server_url: str) -> Iterator[None]:
    """Where it was asked for: one stands in front of this server meanwhile."""
    global _between  # noqa: PLW0603  (of the process, as what was asked for is)
    if not ASKED:
        yield
        return
    _between = PgBouncer(server_url)
    try:
        _between.start()
        yield
    finally:
        _between.stop()
        _between = None


def through(url: str) -> str:
    """How a service of a test gets to a database."""
    return url if _between is None else _between.through(url)


def settings_through(settings: Settings) -> Settings:
    """With the settings that it then has."""
    if _between is None or settings.database_url is None:
        return settings
    url = through(settings.database_url.get_secret_value())
    return settings.model_copy(update={"database_url": SecretStr(url), "prepared_statements": False})


def environ_through(environ: Mapping[str, str]) -> dict[str, str]:
    """The same of a process."""
    if _between is None or URL not in environ:
        return dict(environ)
    return dict(environ) | {URL: through(environ[URL]), PREPARED: "0"}


async def hang_settings_on_role(url: str) -> None:
    """What a pooler drops, as the page says it."""
    parts = urlsplit(url)
    statements = re.findall(r"^ +ALTER ROLE holdfast IN DATABASE holdfast (SET .+);$", PAGE, re.MULTILINE)
    assert len(statements) > 5
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(f'ALTER ROLE "{parts.username}" IN DATABASE "{parts.path[1:]}" {statement}')
    finally:
        await connection.close()


def _place(parts: SplitResult) -> tuple[str | None, int]:
    return parts.hostname, parts.port or 5432
