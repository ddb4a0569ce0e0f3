"""What holds for every file of the repository."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from tests.queue.statements import every

ROOT = Path(__file__).parents[1]
HARD_LIMIT = 400
NAMELESS = {"utils", "util", "common", "helpers", "services", "repositories", "core", "misc"}

# In pieces, so that this file does not name them.
REGISTRIES = [
    "py" + "pi.org",
    "pythonhosted" + ".org",
    "registry.npm" + "js.org",
    "repo1.mav" + "en.org",
    "proxy.gol" + "ang.org",
    "gh" + "cr.io",
]
INDEX_VARIABLES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "npm_config_registry",
    "GOPROXY",
)


def tree() -> list[Path]:
    """Tracked files, and those that would be: new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_no_file_of_code_is_too_long() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in tree() if path.suffix == ".py"}
    assert lengths, "git names no file"
    assert {path: lines for path, lines in lengths.items() if lines > HARD_LIMIT} == {}


def test_every_module_is_named_after_its_job() -> None:
    paths = [path.relative_to(ROOT) for path in tree() if path.suffix == ".py"]
    assert [path for path in paths if NAMELESS & {part.removesuffix(".py") for part in path.parts}] == []


def test_no_file_names_a_package_registry() -> None:
    """Where packages come from is the reader's business: a mirror's address in a file ties the project to it."""
    hosts = set(REGISTRIES)
    for name in INDEX_VARIABLES:
        hosts |= {host for url in re.split(r"[\s,|]+", os.environ.get(name, "")) if (host := urlsplit(url).hostname)}
    found = {
        str(path.relative_to(ROOT)): host for path in tree() for host in hosts if host.encode() in path.read_bytes()
    }
    assert found == {}


def test_every_statement_says_what_it_promises() -> None:
    statements = every()
    assert statements
    assert [str(one) for one in statements if not re.match(r"-- \S.{10,}", one.text)] == []


def test_references_to_decisions_lead_to_one() -> None:
    """A decision is one page: at most 60 lines, with four parts. What names it by its number finds it."""
    decisions = {path.name[:4]: path.read_text() for path in (ROOT / "docs/adr").glob("*.md")}
    parts = ["## Context", "## Decision", "## Consequences", "## Enforced by"]
    assert {
        number: lines
        for number, text in decisions.items()
        if len(lines := text.splitlines()) > 60 or [line for line in lines if line.startswith("## ")] != parts
    } == {}
    named = re.compile(r"(?:ADR[\s#-]*|adr/)(\d{4})")
    astray = {
        (str(path.relative_to(ROOT)), number)
        for path in tree()
        for number in named.findall(path.read_text(errors="ignore"))
        if number not in decisions
    }
    assert astray == set()


def test_recipes_name_files_that_are_there() -> None:
    """What CONTRIBUTING.md tells to write stands in the pilot, app/features/schedules, where it is a feature's."""
    recipes = (ROOT / "CONTRIBUTING.md").read_text().partition("## Recipes")[2].partition("\n## ")[0]
    named = {name.replace("<feature>", "schedules") for name in re.findall(r"`([\w.]+/[\w./<>]*)`", recipes)}
    paths = {name.replace("schedules/<name>", "schedules/schedule") for name in named}
    made = {name for name in paths if "<" in name}
    assert len(paths) > 20
    assert {name for name in paths - made if not (ROOT / name).exists() and not name.startswith("var/")} == set()


def test_the_picture_of_the_tree_has_its_folders() -> None:
    picture = (ROOT / "docs/pictures/house.svg").read_text()
    [contract, *_] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    shown = re.findall(r'data-layer="(\w+)"', picture)
    declared = [name for layer in contract["layers"] for name in layer.split(" | ")]
    assert shown == [name for name in declared if name not in {"__main__", "demo", "settings", "errors"}]
    files = {path.relative_to(ROOT / "app").with_suffix("") for path in tree() if path.is_relative_to(ROOT / "app")}
    folders = {path.parent for path in files}
    parts = {Path(part) for part in re.findall(r'data-part="([\w/]+)"', picture)}
    assert parts <= files | folders
    assert {path for path in folders if path.parent == Path("features")} <= parts
