"""Checks that a topic exists: a mistyped topic has no events, and nothing else would report it."""

from __future__ import annotations

from spark.source.connection import ask, connect


def exists(dsn: str, name: str) -> bool:
    """Whether the topic exists now. Events and files may belong to a deleted topic."""
    with connect(dsn, read_only=True, purpose="topics") as db:
        return ask(db, "SELECT FROM holdfast.topics WHERE name = %s", [name]) != []


def note(dsn: str, name: str | None) -> str | None:
    """A hint for an empty result: that the topic does not exist. None if it does, or if no topic was given."""
    return None if name is None or exists(dsn, name) else f"note: there is no topic {name} now"
