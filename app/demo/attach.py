"""Which service the demo talks to: the one it was told, the one that runs, or one that it starts for its duration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from app.demo.client import AWAY, Client, Refused

START_SECONDS: Final = 180.0  # the first start makes a database
STOP_SECONDS: Final = 20.0
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  (not bound to: looked up)


def answers(url: str) -> bool:
    """Whether a Holdfast answers at a URL."""
    client = Client(url, timeout=3)
    try:
        status, answer = client.once("GET", "/healthz")
    except AWAY:
        return False
    finally:
        client.close()
    return status == 200 and {"status", "version", "uptime_ms"} <= answer.keys()


def local_url(host: str, port: int) -> str:
    """Where a service that listens on `host` can be reached from here."""
    host = _WILDCARDS.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def started(logs: Path) -> Iterator[str]:
    """A service on a free port for as long as this is open: its URL. Raises Refused with its last line."""
    out, err = logs / "service.out", logs / "service.err"
    # Where the system can do that, it ends with this process, however that ends.
    tied = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(  # noqa: S603
            [*tied, sys.executable, "-m", "app", "serve"],
            env=os.environ | {"HOLDFAST_PORT": "0"},
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            start_new_session=True,  # Ctrl+C is for the demo, which tidies up first
        )
    try:
        yield _url(process, out, err)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(process: subprocess.Popen[bytes], out: Path, err: Path) -> str:
    end = time.monotonic() + START_SECONDS
    while not (match := re.search(r" is running on (\S+) .*\n", out.read_text())):
        if process.poll() is not None or time.monotonic() > end:
            words = err.read_text().strip().splitlines() or ["it did not say why"]
            raise Refused(f"the service did not start: {words[-1].removeprefix('holdfast: ')}")
        time.sleep(0.05)
    return match.group(1)
