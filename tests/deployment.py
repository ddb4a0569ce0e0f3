"""What deploy/, docker-compose.yml and the Dockerfiles say, for the tests that look at them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

ROOT: Final = Path(__file__).parents[1]
Manifest = dict[str, Any]


def documents(path: Path) -> list[Manifest]:
    """Those of a YAML file that are not empty."""
    return [one for one in YAML(typ="safe").load_all(path.read_text()) if one]


def instructions(path: Path, word: str) -> list[str]:
    """What a Dockerfile says after each `word`, continued lines as one."""
    text = path.read_text().replace("\\\n", "")
    return re.findall(rf"^{word} +(.*)$", text, re.MULTILINE)


def environ() -> dict[str, str]:
    """The service's image's."""
    return dict(re.findall(r"(\w+)=(\S+)", instructions(ROOT / "Dockerfile", "ENV")[-1]))


def entry_point() -> list[str]:
    """Its program and the words before those of CMD."""
    words: list[str] = json.loads(instructions(ROOT / "Dockerfile", "ENTRYPOINT")[-1])
    return words
