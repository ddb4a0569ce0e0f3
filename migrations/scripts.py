"""Runs SQL files in a migration: those in migrations/schema, and the functions beside the code that calls them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from alembic import op
from sqlalchemy.engine.interfaces import AdaptedConnection

ROOT = Path(__file__).parents[1]


def run(*paths: str) -> None:
    """Runs these files in the migration's transaction. Paths are relative to the repository."""
    for path in paths:
        _send((ROOT / path).read_text("utf-8"))


def _send(script: str) -> None:
    """Sends all statements as one message. SQLAlchemy would prepare them, which works for single statements only."""
    connection = cast(AdaptedConnection, op.get_bind().connection.dbapi_connection)
    connection.run_async(lambda driver: driver.execute(script))
