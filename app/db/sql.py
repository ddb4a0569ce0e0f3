"""Loads statements from the .sql files beside the code that runs them: one statement, one file."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

_NAMES: Final[dict[str, str]] = {}  # by text; complete once the modules are imported


def load(package: str, name: str, **parts: str) -> str:
    """The text of `<package>/sql/<name>.sql`, its header comment included, with each of `parts` in place of its name in
    braces: what follows from a declaration, and is no value.

    Called at import, into a module constant: a missing file fails the import, not the first request.
    """
    text = files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
    for part, value in parts.items():
        text = text.replace(f"{{{part}}}", value)
    _NAMES[text] = f"{package.rpartition('.')[2]}/{name}"
    return text


def name_of(text: str) -> str:
    """`<package>/<name>` of a statement that was loaded; "other" for any other."""
    return _NAMES.get(text, "other")


def text_of(name: str) -> str | None:
    """The text of a statement by `<package>/<name>`; None: it is not loaded."""
    return next((text for text, loaded in _NAMES.items() if loaded == name), None)
