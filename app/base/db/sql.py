"""Loads statements from the .sql files beside the code that runs them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_NAMES: Final[dict[str, str]] = {}  # by text; complete once the modules are imported


def load(package: str, name: str, **parts: str) -> str:
    """The text of `<package>/sql/<name>.sql`, its header comment included, with each of `parts` in place of its name in
    braces: what follows from a declaration, and is no value. For one statement in a file of its own.

    Called at import, into a module constant: a missing file fails the import, not the first request.
    """
    text = files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
    for part, value in parts.items():
        text = text.replace(f"{{{part}}}", value)
    return _register_name(package, name, text)


def load_all(package: str) -> Mapping[str, str]:
    """The statements of `<package>/statements.sql` by name, each with its comment; `-- name: …` is above each. As
    `load`, called at import."""
    return {
        name: _register_name(package, name, text)
        for name, text in split(files(package).joinpath("statements.sql").read_text("utf-8"))
    }


def split(text: str) -> list[tuple[str, str]]:
    """The names and texts of the statements in one file."""
    _, *parts = _NAME.split(text)
    return [(name, text.strip()) for name, text in zip(parts[::2], parts[1::2], strict=True)]


def name_of(text: str) -> str:
    """`<package>/<name>` of a statement that was loaded; "other" for any other."""
    return _NAMES.get(text, "other")


def text_of(name: str) -> str | None:
    """The text of a statement by `<package>/<name>`; None: it is not loaded."""
    return next((text for text, loaded in _NAMES.items() if loaded == name), None)


def _register_name(package: str, name: str, text: str) -> str:
    _NAMES[text] = f"{package.rpartition('.')[2]}/{name}"
    return text
