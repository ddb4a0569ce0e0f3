"""The service as an operator starts it, as a process of its own; and small requests to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.pgbouncer import environ_through
from tests.processes import children, until

ROOT = Path(__file__).parents[1]


class Service:
    """One `serve` as a process."""

    def __init__(self, folder: Path, words: Sequence[str] = (), code: Path = ROOT, **settings: str) -> None:
        self.folder = folder / "data"
        self.out = folder / f"out-{time.monotonic_ns()}"
        self.err = self.out.with_suffix(".err")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        mine = {"HOLDFAST_PORT": "0", "HOLDFAST_DATA_DIR": str(self.folder)} | settings
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "app", "serve", *words],
                cwd=code,
                env=environ_through(clean | mine),
                stdout=out,
                stderr=err,
            )

    @property
    def words(self) -> str:
        return self.out.read_text() + self.err.read_text()

    def up(self) -> str:
        """The address, once it has been printed."""

        def printed() -> str | None:
            assert self.process.poll() is None, self.words
            match = re.search(r"is running on (\S+) .*(?:\}|\nTry:  .*)\n", self.out.read_text())
            return match and match.group(1)

        return until(printed, 30, or_show=lambda: self.words) or ""

    def server(self) -> int | None:
        return next(iter(self.servers()), None)

    def servers(self) -> list[int]:
        return children(self.process.pid, "app _server")

    def postgres(self) -> int | None:
        return next(iter(children(self.process.pid, "postgres")), None)

    def refused(self) -> tuple[int, str]:
        """The exit code, and the one line on stderr."""
        code = self.process.wait(30)
        line = self.err.read_text()
        assert self.out.read_text() == ""
        assert "Traceback" not in line
        assert line.count("\n") == 1, line
        return code, line.strip()

    def stop(self) -> tuple[int, float]:
        """The exit code and the seconds it took."""
        began = time.monotonic()
        self.process.terminate()
        return self.process.wait(30), time.monotonic() - began


Serve = Callable[..., Service]


@contextmanager
def services(folder: Path) -> Iterator[Serve]:
    """Starts services with arguments and settings, and their data in this folder; ends those that still run. `code`: of
    another version."""
    started: list[Service] = []

    def start(*words: str, folder: Path = folder, code: Path = ROOT, **settings: str) -> Service:
        given = {f"HOLDFAST_{name}": value for name, value in settings.items()}
        started.append(Service(folder, words, code, **given))
        return started[-1]

    try:
        yield start
    finally:
        for service in started:
            if service.process.poll() is None:
                service.stop()


def call(url: str, method: str = "GET", body: object = None) -> Any:
    request = urllib.request.Request(url, method=method, headers={"content-type": "application/json"})
    request.data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, timeout=15) as answer:
        return json.loads(answer.read() or b"null")


def answers(url: str) -> bool:
    """Whether a statement gets through to the database."""
    with suppress(OSError, HTTPError):
        call(f"{url}/v0/topics/probe", "PUT", {"type": "queue"})
        return True
    return False
