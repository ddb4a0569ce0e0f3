"""Loads statements from the .sql files beside the code that runs them: one statement, one file."""

from __future__ import annotations

from importlib.resources import files


def load(package: str, name: str) -> str:
    """The text of `<package>/sql/<name>.sql`, its header comment included.

    Called at import, into a module constant: a missing file fails the import, not the first request.
    """
    return files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
