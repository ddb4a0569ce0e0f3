"""Loads statements from .sql files next to the code that runs them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_NAMES: Final[dict[str, str]] = {}  # by text; complete once all modules are imported


def load(package: str, name: str, **parts: str) -> str:
    """The text of `<package>/sql/<name>.sql`, a file with one statement, including its comment. `parts` replace their
    names in braces, for SQL that is generated from declarations.

    Call it at import, for a module constant, so that a missing file fails the import and not the first request.
    """
    text = files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
    for part, value in parts.items():
        text = text.replace(f"{{{part}}}", value)
    return _register_name(package, name, text)


def load_all(package: str) -> Mapping[str, str]:
    """The statements of `<package>/statements.sql` by name, including their comments. Each begins with `-- name: …`.
    Call it at import."""
    return {
        name: _register_name(package, name, text)
        for name, text in split(files(package).joinpath("statements.sql").read_text("utf-8"))
    }


def split(text: str) -> list[tuple[str, str]]:
    """Split a file's text into names and texts of statements."""
    _, *parts = _NAME.split(text)
    return [(name, text.strip()) for name, text in zip(parts[::2], parts[1::2], strict=True)]


def name_of(text: str) -> str:
    """`<package>/<name>` of a loaded statement; "other" for any other text."""
    return _NAMES.get(text, "other")


def text_of(name: str) -> str | None:
    """The text of a statement by `<package>/<name>`; None if it is not loaded."""
    return next((text for text, loaded in _NAMES.items() if loaded == name), None)


def _register_name(package: str, name: str, text: str) -> str:
    _NAMES[text] = f"{package.rpartition('.')[2]}/{name}"
    return text
