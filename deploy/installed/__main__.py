"""The service installed as a package: `holdfast-service` starts it, as `./run` does in a checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HOME = Path(__file__).parent


def main() -> None:
    """Run `python -m app serve`, or another command, with this folder first on Python's path."""
    path = os.pathsep.join([str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "app", *(sys.argv[1:] or ["serve"])], environment)  # noqa: S606


if __name__ == "__main__":
    main()
