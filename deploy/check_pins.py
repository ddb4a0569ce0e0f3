"""Checks deploy/requirements/*.txt against both pyproject.toml files, offline. Prints the faults; exit status 1 if any.

There is no uv.lock, because it would name the package index it was made with and so tie the project to one mirror.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy/requirements"


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    faults: list[str] = []
    pins = {path.stem: read_pins(path.read_text(), path.name, faults) for path in sorted(FOLDER.glob("*.txt"))}
    wanted = project["project"]["dependencies"]
    extra = project["project"]["optional-dependencies"]["tracing"]
    faults += missing(wanted, pins["run"], "run.txt")
    faults += missing([*wanted, *extra], pins["tracing"], "tracing.txt")
    for name, version in pins["run"].items():
        if pins["tracing"].get(name) != version:
            faults.append(f"run.txt pins {name} {version}, but tracing.txt {pins['tracing'].get(name, 'does not')}")
    groups = project["dependency-groups"]
    faults += missing(groups["spark"], pins["spark"], "spark.txt")
    client = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text())["project"]["dependencies"]
    faults += missing(client, pins["client"], "client.txt")
    faults += missing([*wanted, *groups["dev"], *groups["spark"]], pins["dev"], "dev.txt")
    for part in "run", "client", "tracing", "spark":
        for name, version in pins[part].items():
            if pins["dev"].get(name) != version:
                faults.append(f"{part}.txt pins {name} {version}, but dev.txt {pins['dev'].get(name, 'does not')}")
    for fault in faults:
        print(f"pins: {fault}", file=sys.stderr)
    if faults:
        print("pins: run `make pins` to update them from pyproject.toml", file=sys.stderr)
    return 1 if faults else 0


def read_pins(text: str, source: str, faults: list[str]) -> dict[str, str]:
    """Versions by name. Adds each line that is not a pin with hashes, and each address of an index, to `faults`."""
    pins: dict[str, str] = {}
    for entry in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = entry.partition(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)(.*)", line)
        if match is None:
            faults.append(f"{source}: not a pin: {line[:80]}")
            continue
        name, version, rest = match.groups()
        pins[canonicalize_name(name)] = version
        if "--hash=sha256:" not in rest:
            faults.append(f"{source}: {name} has no hash")
    if "://" in text or re.search(r"^\s*(-i|--index-url|--extra-index-url|--find-links)\b", text, re.MULTILINE):
        faults.append(f"{source}: names an index; pins are the same from each")
    return pins


def missing(wanted: list[str], pins: dict[str, str], source: str) -> list[str]:
    """Requirements that no pin satisfies. Ignores markers, because the pins are for every platform."""
    faults = []
    for requirement in map(Requirement, wanted):
        version = pins.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            faults.append(f"{source}: {requirement} is pinned to {version or 'nothing'}")
    return faults


if __name__ == "__main__":
    sys.exit(main())
