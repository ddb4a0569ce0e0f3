"""Runs SQL files in a migration: those of migrations/schema, and functions from beside the code that calls them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from alembic import op
from sqlalchemy.engine.interfaces import AdaptedConnection

ROOT = Path(__file__).parents[1]


def run(*paths: str) -> None:
    """Run these files, named from the root of the code, in the migration's transaction."""
    for path in paths:
        _send((ROOT / path).read_text("utf-8"))


def _send(script: str) -> None:
    """As one message, however many statements it has: SQLAlchemy would prepare it, which takes one at a time."""
    connection = cast(AdaptedConnection, op.get_bind().connection.dbapi_connection)
    connection.run_async(lambda driver: driver.execute(script))
