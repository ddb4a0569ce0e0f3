"""Finds the service for tests: installed with the client, or in a checkout."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGE: Final = "holdfast_service"
VARIABLE: Final = "HOLDFAST_TEST_SERVICE"
MISSING: Final = (
    "The Holdfast service is not installed here. In a checkout of its repository: pip install . './sdk[testing]'\n"
    f"Or set {VARIABLE} to the folder of a checkout, which has a file `run`."
)


class ServiceMissing(RuntimeError):
    """The service is not installed. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Home:
    """The service's folder with code and migrations, and the command that runs it there."""

    folder: Path
    command: tuple[str, ...]

    def version(self) -> str:
        """A hash that changes when an empty database of this service may differ."""
        digest = hashlib.sha256()
        made_by = ("migrations/**/*.py", "migrations/**/*.sql", "app/**/functions/*.sql")
        for path in sorted(path for pattern in made_by for path in self.folder.glob(pattern)):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:16]

    def environment(self, data: Path) -> dict[str, str]:
        """The environment of the service's processes, without the client's variables."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HOLDFAST_") or name == "HOLDFAST_PG_BINDIR"
        }
        # The service's folder must come first on its path, before the tests' modules.
        kept.pop("PYTHONSAFEPATH", None)
        if kept.pop("PYTHONDONTWRITEBYTECODE", None):  # cache bytecode elsewhere: compiling takes seconds
            kept["PYTHONPYCACHEPREFIX"] = str(cache() / "bytecode")
        return kept | {"HOLDFAST_DATA_DIR": str(data), "HOLDFAST_PORT": "0"}


def cache() -> Path:
    """The folder for data between test runs, in the user's cache folder."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(named)
    elif os.geteuid() == 0:
        folder = Path("/var/cache")  # PostgreSQL may run as the user nobody, who can't enter root's home
    else:
        folder = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return folder / "holdfast-testing"


def find() -> Home:
    """Find the service: the checkout in the variable, else the installed package. Raises ServiceMissing."""
    if named := os.environ.get(VARIABLE):
        folder = Path(named).expanduser().absolute()
        if not (folder / "run").is_file() or not (folder / "migrations").is_dir():
            raise ServiceMissing(f"{VARIABLE}={named} is not a checkout of the service: it has no file `run`")
        return Home(folder, (str(folder / "run"),))
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ServiceMissing(MISSING)
    return Home(Path(spec.submodule_search_locations[0]), (sys.executable, "-m", "app"))
