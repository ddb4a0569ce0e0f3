"""Programs that no Python package brings; deploy/bootstrap.sh installs them where it may."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
from pathlib import Path

import pytest


def program(name: str) -> str:
    """Its path. Without it the test fails, or is skipped where that was asked for."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None and os.environ.get("HOLDFAST_TEST_ALLOW_MISSING"):
        pytest.skip(f"{name} is not installed")
    assert path is not None, f"{name} is not installed: ./test says how, or leaves it out by --allow-missing"
    return path


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def given_away(folder: Path) -> str | None:
    """The account that a server which refuses to run as root is to run as; it gets the folder. None where we aren't."""
    if os.geteuid() != 0:
        return None
    account = pwd.getpwnam("nobody")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid)
    return account.pw_name
