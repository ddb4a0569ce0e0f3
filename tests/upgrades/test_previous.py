"""An upgrade as operators do it: the version before goes on working on the next schema while the new one starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.base.db import schema
from tests.launch import services
from tests.steady import Steady
from tests.upgrades.databases import MakeDatabase
from tests.upgrades.releases import ROOT, NoHistory, Release, next_release, previous_release

QUEUE = "mail"


def from_history(folder: Path) -> tuple[Release, Release]:
    return previous_release(folder), Release(ROOT)


def to_one_made_up(folder: Path) -> tuple[Release, Release]:
    return Release(ROOT), next_release(folder)


@pytest.mark.parametrize("two", [from_history, to_one_made_up])
async def test_the_version_before_works_on_the_next_schema_beside_the_next_version(
    two: Callable[[Path], tuple[Release, Release]], tmp_path: Path, empty_database: MakeDatabase
) -> None:
    try:
        before, after = two(tmp_path / "code")
    except NoHistory as reason:
        pytest.skip(f"no code of the schema before {schema.KNOWN[-1]}: {reason}")
    assert before.versions[-1] < after.versions[-1]
    url = await empty_database()
    with services(tmp_path) as start:
        old = start(code=before.folder, DATABASE_URL=url)
        there = await asyncio.to_thread(old.up)
        assert await schema.current(url) == before.versions[-1]
        httpx.put(f"{there}/v0/topics/{QUEUE}", json={"type": "queue"}).raise_for_status()
        async with Steady(QUEUE) as clients:
            clients.at(there)
            await clients.go_on()
            new = start(code=after.folder, DATABASE_URL=url)
            here = await asyncio.to_thread(new.up)
            assert await schema.current(url) == after.versions[-1]
            clients.at(here)
            await clients.go_on()
        assert " ERROR " not in old.words + new.words, old.words + new.words
