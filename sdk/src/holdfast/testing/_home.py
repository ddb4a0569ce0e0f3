"""Where the service is that tests start: installed beside the client, or in a checkout."""

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
    "No Holdfast service is installed here. In a checkout of its repository: pip install . './sdk[testing]'\n"
    f"Or let {VARIABLE} name the folder of a checkout, which has a file `run`."
)


class ServiceMissing(RuntimeError):
    """There is no service to start. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folder with its code and its migrations, and the words that run it there."""

    folder: Path
    command: tuple[str, ...]

    def version(self) -> str:
        """Changes whenever an empty database of this service may look different."""
        digest = hashlib.sha256()
        made_by = ("migrations/**/*.py", "migrations/**/*.sql", "app/**/functions/*.sql")
        for path in sorted(path for pattern in made_by for path in self.folder.glob(pattern)):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:16]

    def environment(self, data: Path) -> dict[str, str]:
        """Of the service's processes: what is meant for clients is not for it."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HOLDFAST_") or name == "HOLDFAST_PG_BINDIR"
        }
        # Its folder comes first on its path, whatever the tests' own modules are called.
        kept.pop("PYTHONSAFEPATH", None)
        if kept.pop("PYTHONDONTWRITEBYTECODE", None):  # beside the modules; to compile them anew takes seconds
            kept["PYTHONPYCACHEPREFIX"] = str(cache() / "bytecode")
        return kept | {"HOLDFAST_DATA_DIR": str(data), "HOLDFAST_PORT": "0"}


def cache() -> Path:
    """What is kept between runs of tests: in the user's cache folder."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(named)
    elif os.geteuid() == 0:
        folder = Path("/var/cache")  # root's own can't be entered by nobody, as whom PostgreSQL may have to run
    else:
        folder = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return folder / "holdfast-testing"


def find() -> Home:
    """The checkout that the variable names, else what is installed. Raises ServiceMissing."""
    if named := os.environ.get(VARIABLE):
        folder = Path(named).expanduser().absolute()
        if not (folder / "run").is_file() or not (folder / "migrations").is_dir():
            raise ServiceMissing(f"{VARIABLE}={named} is no checkout of the service: it has no file `run`")
        return Home(folder, (str(folder / "run"),))
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ServiceMissing(MISSING)
    return Home(Path(spec.submodule_search_locations[0]), (sys.executable, "-m", "app"))
