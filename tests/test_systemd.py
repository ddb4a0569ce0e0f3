"""deploy/systemd: systemd takes it, little is left open, and the service takes its settings."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.settings import Settings
from tests.deployment import ROOT
from tests.launch import services

FOLDER = ROOT / "deploy/systemd"
UNITS = sorted(path for path in FOLDER.iterdir() if path.suffix in (".service", ".timer"))
ANALYZE = shutil.which("systemd-analyze")
EXPOSURE = 20  # tenths, of 100; a unit that says nothing has 96


def section(unit: str, name: str) -> list[str]:
    """What a unit says, all of a name."""
    return re.findall(rf"^{name}=(.*)$", (FOLDER / unit).read_text(), re.MULTILINE)


@pytest.mark.skipif(ANALYZE is None, reason="no systemd")
def test_systemd_takes_them(tmp_path: Path) -> None:
    assert len(UNITS) == 3
    for unit in UNITS:
        here = unit.read_text().replace("/opt/holdfast/.venv/bin/python", sys.executable)
        (tmp_path / unit.name).write_text(here.replace("/opt/holdfast", str(ROOT)))
    paths = [str(tmp_path / unit.name) for unit in UNITS]
    checked = analyze("verify", "--man=no", *paths)
    assert (checked.returncode, checked.stderr) == (0, "")
    for path in paths:
        if path.endswith(".service"):
            told = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", path)
            assert told.returncode == 0, told.stdout


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run([ANALYZE, "--no-pager", *words], capture_output=True, text=True, check=False, timeout=60)


def test_the_service_takes_its_settings(tmp_path: Path) -> None:
    environ = dict(line.split("=", 1) for line in (FOLDER / "holdfast.env").read_text().splitlines() if "=" in line)
    own = dict(word.split("=", 1) for line in section("holdfast.service", "Environment") for word in line.split())
    credentials = [line.split(":")[0] for line in section("holdfast.service", "LoadCredential")]
    for name, secret in zip(credentials, ("postgresql://holdfast:x@db/holdfast", "a-key"), strict=True):
        (tmp_path / name).write_text(f"{secret}\n")
    given = {name: value.replace("%d", str(tmp_path)) for name, value in (environ | own).items()}
    settings = Settings.from_env(given)
    assert settings.database_url is not None
    assert len(settings.api_keys) == 1
    assert settings.workers == 2
    assert float(section("holdfast.service", "TimeoutStopSec")[0]) >= settings.stop_seconds + 5
    assert int(section("holdfast.service", "LimitNOFILE")[0]) > settings.max_connections


async def test_the_reapers_unit_runs_them(new_database: Callable[[], Awaitable[str]], tmp_path: Path) -> None:
    [line] = section("holdfast-reaper.service", "ExecStart")
    command = shlex.split(line.replace("/opt/holdfast", str(ROOT)).replace("$$", "$"))
    (tmp_path / "reaper-key").write_text("a-key\n")
    with services(tmp_path) as start:
        url = start(DATABASE_URL=await new_database(), API_KEYS="a-key").up()
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOLDFAST_URL": url, "CREDENTIALS_DIRECTORY": str(tmp_path)}
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
        assert (ran.returncode, ran.stderr) == (0, '{"expired":0} expiry: 200\n{"deleted":0} delete: 200\n')
        (tmp_path / "reaper-key").write_text("another\n")
        refused = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
        assert (refused.returncode, "expiry: 401" in refused.stderr) == (1, True)
