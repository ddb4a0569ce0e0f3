"""The SQL files that migrations run: each is run, and none changes without a migration that runs it again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.base.db import schema
from tests.upgrades.databases import MakeDatabase, connected, list_schema, migrate
from tests.upgrades.releases import ROOT, NoHistory, Release, release_of_the_newest_migration

FUNCTIONS = "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace"


def scripts() -> list[Path]:
    return sorted([*ROOT.glob("migrations/schema/*.sql"), *ROOT.glob("app/**/functions/*.sql")])


def code(line: str) -> str:
    """Without its comments and spaces, which are no change of the schema."""
    return re.sub(r"\s+", "", re.sub(r"--[^\n]*", "", line))


def test_every_script_is_run_by_a_migration() -> None:
    migrations = "\n".join(path.read_text() for path in ROOT.glob("migrations/versions/*.py"))
    names = [str(path.relative_to(ROOT)) for path in scripts()]
    assert len(names) > 25
    assert [name for name in names if f'"{name}"' not in migrations] == []


def test_every_script_says_what_it_is_for() -> None:
    assert [path.name for path in scripts() if not re.match(r"-- \S.{10,}", path.read_text())] == []


async def test_every_function_has_its_file(new_database: MakeDatabase) -> None:
    """One that is changed where it stands in the database would be lost the next time that its file is run."""
    files = "\n".join(path.read_text() for path in ROOT.glob("app/**/functions/*.sql"))
    async with connected(await new_database()) as db:
        made = {row["proname"] for row in await db.fetch(FUNCTIONS)}
    assert made == set(re.findall(r"^CREATE OR REPLACE FUNCTION holdfast\.(\w+)\(", files, re.MULTILINE))


async def test_a_script_that_changed_has_a_migration_that_says_so(
    tmp_path: Path, empty_database: MakeDatabase, new_database: MakeDatabase
) -> None:
    """Databases of before have what it was: it has to be run again by the next migration."""
    try:
        then = release_of_the_newest_migration(tmp_path / "code")
    except NoHistory as reason:
        pytest.skip(f"no code of when migration {schema.KNOWN[-1]} came: {reason}")
    url = await empty_database()
    await migrate(then, url)
    await migrate(Release(ROOT), url)
    migrated, fresh = await list_schema(url), await list_schema(await new_database())
    assert sorted(map(code, migrated)) == sorted(map(code, fresh))


async def test_back_to_nothing_and_up_again(new_database: MakeDatabase, empty_database: MakeDatabase) -> None:
    url = await new_database()
    before = await list_schema(url)
    await schema.downgrade(url, "base")
    assert await schema.current(url) is None
    assert len(await list_schema(url)) < 10  # what Alembic keeps
    await schema.upgrade(url)
    assert await list_schema(url) == before
