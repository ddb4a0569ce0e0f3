"""Loads statements from the .sql files beside the code that runs them: one statement, one file."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

_NAMES: Final[dict[str, str]] = {}  # by text; complete once the modules are imported


def load(package: str, name: str) -> str:
    """The text of `<package>/sql/<name>.sql`, its header comment included.

    Called at import, into a module constant: a missing file fails the import, not the first request.
    """
    text = files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
    _NAMES[text] = f"{package.rpartition('.')[2]}/{name}"
    return text


def name_of(text: str) -> str:
    """`<package>/<name>` of a statement that was loaded; "other" for any other."""
    return _NAMES.get(text, "other")
