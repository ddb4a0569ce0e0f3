"""docs/schema.sql is what the migrations make: people and other programs read and write the tables by it."""

from __future__ import annotations

import asyncio
import difflib

import pytest

from tests import schema_snapshot


async def test_the_snapshot_is_what_the_migrations_make() -> None:
    try:
        made = await asyncio.to_thread(schema_snapshot.dump)
    except schema_snapshot.OtherVersion as error:
        pytest.skip(str(error))
    kept = schema_snapshot.PATH.read_text()
    changes = list(
        difflib.unified_diff(kept.splitlines(), made.splitlines(), "docs/schema.sql", "migrations", lineterm="")
    )
    assert not changes, "run `make schema` and read its diff:\n" + "\n".join(changes)


def test_what_changes_by_itself_is_left_out() -> None:
    text = "\\restrict abc\n\n\n\n-- Dumped by pg_dump version 18.4\nCREATE TABLE t ();\n\\unrestrict abc\n"
    assert schema_snapshot.normalised(text) == "CREATE TABLE t ();\n"
