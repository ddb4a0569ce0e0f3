"""Writes a bill of materials for each file of pins: deploy/bill.py FOLDER [options of cyclonedx-py]. The format is
CycloneDX 1.6 as JSON. The same pins give the same file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINS = ROOT / "deploy/requirements"
PARTS = ("run", "tracing", "dev", "spark")


def main(folder: Path, options: list[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    paths = {part: folder / f"holdfast-{part}.cdx.json" for part in PARTS}
    made = [subprocess.Popen(_command(part, path, options)) for part, path in paths.items()]  # noqa: S603  (our own arguments)
    codes = [process.wait() for process in made]
    if any(codes):
        return 1
    for path in paths.values():
        print(f"{path}: {len(json.loads(path.read_text())['components'])} parts")
    return 0


def _command(part: str, path: Path, options: list[str]) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "requirements",
        "--pyproject",
        str(ROOT / "pyproject.toml"),
        *options,
    ]
    return [
        *command,
        "--output-reproducible",
        "--sv",
        "1.6",
        "--of",
        "JSON",
        "-o",
        str(path),
        str(PINS / f"{part}.txt"),
    ]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
