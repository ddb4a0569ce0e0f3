"""Runs the service as a process during the tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from holdfast.testing import _template
from holdfast.testing._home import Home

READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
TICK: Final = 0.01


class DidNotStart(RuntimeError):
    """The service ended, or was not ready in time. The message has its output."""


class Process:
    """A service process on a new copy of the template. Raises DidNotStart."""

    def __init__(self, home: Home) -> None:
        self.data = _template.copy(home)
        self._log = self.data.parent / "service.log"
        # If the system supports it, the service ends with this process.
        tied = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [*tied, *home.command, "serve"],
                cwd=home.folder,
                env=home.environment(self.data),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl+C goes to the tests, which then stop the service
            )
        try:
            self.url = self._address()
            self.database_url = self._database()
        except BaseException:
            self.stop()
            raise

    @property
    def log(self) -> str:
        """The service's output."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Stop the service and delete its data."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.data.parent, ignore_errors=True)

    def _address(self) -> str:
        end = time.monotonic() + READY_SECONDS
        while True:
            if found := re.search(r" is running on (\S+) .*\n", self.log):
                return found.group(1)
            if self._process.poll() is not None or time.monotonic() > end:
                raise DidNotStart(f"The service did not start:\n{self.log}")
            time.sleep(TICK)

    def _database(self) -> str:
        """The database's URL, from the data folder (docs/configuration.md)."""
        [port], [password] = self.data.glob("pg*.port"), self.data.glob("pg*.password")
        secret = quote(password.read_text().strip(), safe="")
        return f"postgresql://holdfast:{secret}@127.0.0.1:{port.read_text().strip()}/holdfast"


def started(home: Home) -> Process:
    """Start a service. If none starts from the template, for example after an upgrade of PostgreSQL, remakes it."""
    with suppress(DidNotStart):
        return Process(home)
    _template.discard(home)
    return Process(home)
