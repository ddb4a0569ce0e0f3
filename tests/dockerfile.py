"""A Dockerfile, run in a clean folder in place of a container's file system: all but FROM's files and useradd."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1]
OURS: Final = ("/opt/", "/build/")  # what the image's own lines make
KNOWN: Final = {"COPY", "RUN", "ENV", "USER", "WORKDIR", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction, and what it says; which stage it is of."""

    stage: int
    word: str
    rest: str


@dataclass(slots=True)
class Image:
    """What the last stage says of the container that is started."""

    user: str = ""
    folder: str = "/"
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)


def lines(path: Path) -> Iterator[Line]:
    """The instructions. Raises ValueError for one that is not known here."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    stage = -1
    for line in re.sub(r"\\\n", "", text).splitlines():
        if not line.strip():
            continue
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            stage += 1
        elif word not in KNOWN:
            raise ValueError(f"{path.name}: {word} is not known")
        yield Line(stage, word, rest.strip())


def image(path: Path) -> Image:
    """Of the last stage."""
    every = list(lines(path))
    found = Image()
    for line in every:
        if line.stage != every[-1].stage:
            continue
        match line.word:
            case "USER":
                found.user = line.rest
            case "WORKDIR":
                found.folder = line.rest
            case "ENTRYPOINT":
                found.command = json.loads(line.rest)
            case "CMD":
                found.command = [*found.command, *json.loads(line.rest)]
            case "HEALTHCHECK":
                found.health = json.loads(line.rest.partition("CMD ")[2])
            case "ENV":
                found.environ |= dict(re.findall(r"(\w+)=(\S+)", line.rest))
    return found


def build(path: Path, folder: Path, *, runs: Callable[[str], bool], python: Path) -> list[str]:
    """Do in `folder` what the lines do in a container, of RUN those that `runs` takes; the others are returned.
    `python` is the one that FROM brings.

    Stages share the folder: a COPY between them has to be of a path onto itself. Raises CalledProcessError.
    """
    left: list[str] = []
    programs = folder / "from"
    programs.mkdir()
    (programs / "python").symlink_to(python)
    for line in lines(path):
        if line.word == "COPY" and line.rest.startswith("--from="):
            _, source, target = line.rest.split()
            assert source == target, line.rest
        elif line.word == "COPY":
            *sources, target = line.rest.split()
            for source in sources:
                _copy(ROOT / source, Path(inside(target, folder)))
        elif line.word == "RUN" and runs(line.rest):
            environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            environ["PATH"] = os.pathsep.join([str(programs), os.environ["PATH"]])
            subprocess.run(["sh", "-euc", inside(line.rest, folder)], cwd=folder, env=environ, check=True, timeout=600)
        elif line.word == "RUN":
            left.append(line.rest)
    return left


def inside(text: str, folder: Path) -> str:
    """With what is the image's own put into the folder."""
    for start in OURS:
        text = re.sub(rf"(?<![\w/.]){re.escape(start)}", f"{folder}{start}", text)
    return text


def ignored(path: Path) -> bool:
    """Whether .dockerignore keeps a path of the repository out: the last line that fits decides."""
    name, out = str(path.relative_to(ROOT)), False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        anywhere = pattern.removeprefix("**/")
        parts = [anywhere] if anywhere != pattern else [pattern, f"{pattern}/*"]
        if any(fnmatch.fnmatch(name, one) for one in parts) or (anywhere != pattern and anywhere in Path(name).parts):
            out = not line.startswith("!")
    return out


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        assert not ignored(source), f"{source} is kept out by .dockerignore"
        shutil.copyfile(source, target)
        return

    def left(where: str, names: list[str]) -> set[str]:
        return {name for name in names if ignored(Path(where) / name)}

    shutil.copytree(source, target, ignore=left, dirs_exist_ok=True)
