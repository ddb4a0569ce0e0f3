"""The service as an operator starts it, on the tests' database."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.pgbouncer import environ_through
from tests.processes import children, until

ROOT = Path(__file__).parents[2]


class Process:
    """`python -m app serve`, and the process below it that answers requests."""

    def __init__(self, database_url: str, folder: Path, **settings: str) -> None:
        self._out = folder / "out"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        mine = {"HOLDFAST_DATABASE_URL": database_url, "HOLDFAST_PORT": "0"} | settings
        with self._out.open("wb") as out:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "app", "serve"],
                cwd=ROOT,
                env=environ_through(clean | mine),
                stdout=out,
                stderr=out,
            )

    def url(self) -> str:
        """Where it listens, once it does."""
        found = until(lambda: re.search(r"is running on (\S+)", self._out.read_text()), 30, or_show=self._out.read_text)
        assert found is not None
        return found.group(1)

    def server(self) -> psutil.Process:
        [pid] = children(self._supervisor.pid, "app _server")
        return psutil.Process(pid)

    def stop(self) -> None:
        self._supervisor.terminate()
        self._supervisor.wait(30)
