"""Whether there is a topic of a name: one that was mistyped has no events either, and nothing else would say so."""

from __future__ import annotations

from spark.source.connection import ask, connect


def exists(dsn: str, name: str) -> bool:
    """Now; events and files may be of one that is no more."""
    with connect(dsn, read_only=True, purpose="topics") as db:
        return ask(db, "SELECT FROM holdfast.topics WHERE name = %s", [name]) != []


def note(dsn: str, name: str | None) -> str | None:
    """What to say where nothing was found of a topic, or of all (None); None if that says all."""
    return None if name is None or exists(dsn, name) else f"note: there is no topic {name} now"
