"""An upgrade as operators do it: the version before goes on working on the next schema while the new one starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from app.db import schema
from tests.launch import services
from tests.steady import Steady
from tests.upgrades.releases import NoHistory, previous_release

QUEUE = "mail"


async def test_the_version_before_works_on_this_schema_beside_this_version(
    tmp_path: Path, empty_database: Callable[[], Awaitable[str]]
) -> None:
    code = tmp_path / "code"
    try:
        before = previous_release(code)
    except NoHistory as reason:
        pytest.skip(f"no code of the schema before {schema.KNOWN[-1]}: {reason}")
    assert before < schema.KNOWN[-1]
    url = await empty_database()
    with services(tmp_path) as start:
        old = start(code=code, DATABASE_URL=url)
        there = await asyncio.to_thread(old.up)
        assert await schema.current(url) == before
        httpx.put(f"{there}/v0/topics/{QUEUE}", json={"type": "queue"}).raise_for_status()
        async with Steady(QUEUE) as clients:
            clients.at(there)
            await clients.go_on()
            new = start(DATABASE_URL=url)
            here = await asyncio.to_thread(new.up)
            assert await schema.current(url) == schema.KNOWN[-1]
            clients.at(here)
            await clients.go_on()
        assert " ERROR " not in old.words + new.words, old.words + new.words
