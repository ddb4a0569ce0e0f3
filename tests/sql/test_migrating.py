"""What docs/migrating says to run moves jobs: into the database from tables as those of pgmq and queue-ti are."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, resolve
from tests.sql.conftest import Db
from tests.sql.test_page import psql

PAGES = Path(__file__).parents[2] / "docs/migrating"


def block(page: str, kind: str) -> str:
    [found] = re.findall(rf"^```{kind}\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
async def database(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[tuple[str, Db]]:
    """A database with a queue `orders`, and a connection to it."""
    url = await new_database()
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, "orders", resolve("orders", AskedSettings(type="queue")))
    db = await asyncpg.connect(url)
    yield url, db
    await db.close()


async def test_a_queue_of_pgmq_moves_in_one_statement(database: tuple[str, Db]) -> None:
    _, db = database
    await db.execute(
        "CREATE SCHEMA pgmq;"
        "CREATE TABLE pgmq.q_orders (msg_id bigint PRIMARY KEY, read_ct integer, enqueued_at timestamptz,"
        " vt timestamptz, message jsonb, headers jsonb);"
        "INSERT INTO pgmq.q_orders VALUES (1, 0, now(), now(), '{\"n\": 1}', NULL),"
        " (2, 1, now(), now() + interval '1 hour', '{\"n\": 2}', NULL)"
    )
    await db.execute(block("pgmq.md", "sql"))
    jobs = await db.fetch(
        "SELECT convert_from(payload, 'UTF8') AS payload, visible_at > now() + interval '50 min' AS waits"
        " FROM holdfast.jobs WHERE topic = 'orders' ORDER BY seq"
    )
    assert [tuple(job) for job in jobs] == [('{"n": 1}', False), ('{"n": 2}', True)]
    assert await db.fetchval("SELECT count(*) FROM pgmq.q_orders") == 0


async def test_messages_of_queue_ti_are_copied_once(database: tuple[str, Db]) -> None:
    url, db = database
    await db.execute(
        "CREATE TABLE public.messages (id uuid DEFAULT gen_random_uuid(), topic text, payload bytea, metadata jsonb,"
        " key text, status text, original_topic text, created_at timestamptz DEFAULT now());"
        "INSERT INTO public.messages (topic, payload, metadata, key, status) VALUES"
        " ('orders', '{\"n\": 1}', '{\"trace\": \"z9\"}', NULL, 'pending'), ('orders', '2', NULL, 'k', 'processing'),"
        " ('orders', '3', NULL, NULL, 'expired')"
    )
    path = f"{Path(psql()).parent}:{os.environ['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", block("queue-ti.md", "bash")]
    for _ in range(2):
        env = os.environ | {"OLD": url, "NEW": url, "PATH": path}
        ran = await asyncio.to_thread(
            subprocess.run, command, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stderr
    jobs = await db.fetch(
        "SELECT convert_from(payload, 'UTF8') AS payload, metadata::text AS metadata, key FROM holdfast.jobs"
        " WHERE topic = 'orders' ORDER BY seq"
    )
    assert [(job["payload"], job["key"]) for job in jobs] == [('{"n": 1}', None), ("2", "k")]
    assert jobs[0]["metadata"] == '{"trace": "z9"}'
