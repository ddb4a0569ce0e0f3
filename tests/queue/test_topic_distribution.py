"""deploy/citus divides every table of the schema as docs/scale.md has it, and its keys allow it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg

from tests.queue.statements import ROOT
from tests.queue.test_topic_bound import PAGE, SPREAD

CITUS: Final = ROOT / "deploy/citus"
TABLES: Final = """
SELECT relname FROM pg_class
WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
NOT_BY_ID: Final = """
SELECT i.indexrelid::regclass::text FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'holdfast'::regnamespace AND c.relname = ANY ($1)
WHERE i.indisunique AND NOT EXISTS (
    SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'topic_id' AND a.attnum = ANY (i.indkey))
"""
WITHOUT: Final = """
SELECT name FROM unnest($1::text[]) AS name WHERE NOT EXISTS (
    SELECT 1 FROM pg_attribute WHERE attrelid = ('holdfast.' || name)::regclass AND attname = 'topic_id')
"""


async def test_each_table_is_in_one_place(new_database: Callable[[], Awaitable[str]]) -> None:
    divided = listed("spread"), listed("reference"), listed("local")
    db = await asyncpg.connect(await new_database())
    try:
        tables = [row["relname"] for row in await db.fetch(TABLES)]
        assert sorted(tables) == sorted(name for names in divided for name in names)
        await db.execute((CITUS / "keys.sql").read_text())
        assert await db.fetch(NOT_BY_ID, list(SPREAD)) == []
        assert await db.fetch(WITHOUT, list(SPREAD)) == []
    finally:
        await db.close()


def test_the_script_distributes_what_the_page_does() -> None:
    text = (CITUS / "distribute.sql").read_text()
    spread = re.findall(r"create_distributed_table\('holdfast\.(\w+)', 'topic_id', colocate_with => '([\w.]+)'\)", text)
    assert spread[0] == ("jobs", "none")
    assert {place for _, place in spread[1:]} == {"holdfast.jobs"}
    assert sorted(name for name, _ in spread) == sorted(SPREAD)
    assert re.findall(r"create_reference_table\('holdfast\.(\w+)'\)", text) == listed("reference")


def listed(mark: str) -> list[str]:
    """The names in the first column of the table behind a mark."""
    table = re.split(rf"<!-- {mark}\b[^>]*-->\n\n", PAGE)[1].split("\n\n")[0]
    return [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
