"""Scripts of docs/migrating move jobs within PostgreSQL, from tables of the same layout as the other queue's."""

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


async def moved(db: Db, page: str) -> list[tuple[str, str, int, bool]]:
    """Topic, payload, priority and whether it waits, of each job that the page's statement moves."""
    await db.execute(block(page, "sql"))
    jobs = await db.fetch(
        "SELECT topic, convert_from(payload, 'UTF8'), priority, visible_at > now() + interval '50 min'"
        " FROM holdfast.jobs ORDER BY seq"
    )
    return [tuple(job) for job in jobs]


async def test_jobs_of_river_move_in_one_statement(database: tuple[str, Db]) -> None:
    url, db = database
    await db.execute(
        "CREATE TYPE river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'pending',"
        " 'retryable', 'running', 'scheduled');"
        "CREATE TABLE river_job (id bigserial PRIMARY KEY, state river_job_state NOT NULL DEFAULT 'available',"
        " attempt smallint NOT NULL DEFAULT 0, max_attempts smallint NOT NULL DEFAULT 25,"
        " created_at timestamptz NOT NULL DEFAULT now(), scheduled_at timestamptz NOT NULL DEFAULT now(),"
        " priority smallint NOT NULL DEFAULT 1, args jsonb NOT NULL, kind text NOT NULL,"
        " metadata jsonb NOT NULL DEFAULT '{}', queue text NOT NULL DEFAULT 'default', tags varchar(255)[]);"
        "INSERT INTO river_job (state, args, kind, priority, scheduled_at) VALUES"
        " ('available', '{\"n\": 1}', 'sort', 1, now()), ('completed', '{\"n\": 2}', 'sort', 1, now()),"
        " ('scheduled', '{\"n\": 3}', 'sort', 4, now() + interval '1 hour'),"
        " ('running', '{\"n\": 4}', 'sort', 1, now())"
    )
    await make(url, "sort")
    assert await moved(db, "river.md") == [("sort", '{"n": 1}', 9, False), ("sort", '{"n": 3}', 6, True)]
    assert await db.fetchval("SELECT string_agg(state::text, ' ' ORDER BY id) FROM river_job") == "completed running"


async def test_jobs_of_oban_move_in_one_statement(database: tuple[str, Db]) -> None:
    url, db = database
    await db.execute(
        "CREATE TYPE oban_job_state AS ENUM ('available', 'scheduled', 'executing', 'retryable', 'completed',"
        " 'discarded', 'cancelled');"
        "CREATE TABLE oban_jobs (id bigserial PRIMARY KEY, state oban_job_state NOT NULL DEFAULT 'available',"
        " queue text NOT NULL DEFAULT 'default', worker text NOT NULL, args jsonb NOT NULL, attempt integer NOT NULL"
        " DEFAULT 0, max_attempts integer NOT NULL DEFAULT 20, inserted_at timestamp NOT NULL"
        " DEFAULT timezone('UTC', now()), scheduled_at timestamp NOT NULL DEFAULT timezone('UTC', now()),"
        " priority integer NOT NULL DEFAULT 0, tags text[] DEFAULT '{}', meta jsonb DEFAULT '{}');"
        "INSERT INTO oban_jobs (state, worker, args, priority, scheduled_at) VALUES"
        " ('available', 'MyApp.Mailer', '{\"n\": 1}', 0, timezone('UTC', now())),"
        " ('executing', 'MyApp.Mailer', '{\"n\": 2}', 0, timezone('UTC', now())),"
        " ('scheduled', 'MyApp.Mailer', '{\"n\": 3}', 9, timezone('UTC', now()) + interval '1 hour')"
    )
    await make(url, "MyApp.Mailer")
    mail = "MyApp.Mailer"
    assert await moved(db, "oban.md") == [(mail, '{"n": 1}', 9, False), (mail, '{"n": 3}', 0, True)]
    assert await db.fetchval("SELECT string_agg(state::text, ' ') FROM oban_jobs") == "executing"


async def test_jobs_of_pg_boss_move_or_none_does(database: tuple[str, Db]) -> None:
    url, db = database
    await db.execute(
        "CREATE SCHEMA pgboss;"
        "CREATE TYPE pgboss.job_state AS ENUM ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');"
        "CREATE TABLE pgboss.job (id uuid NOT NULL DEFAULT gen_random_uuid(), name text NOT NULL,"
        " priority integer NOT NULL DEFAULT 0, data jsonb, state pgboss.job_state NOT NULL DEFAULT 'created',"
        " start_after timestamptz NOT NULL DEFAULT now(), created_on timestamptz NOT NULL DEFAULT now(),"
        " PRIMARY KEY (name, id)) PARTITION BY LIST (name);"
        "CREATE TABLE pgboss.job_common PARTITION OF pgboss.job DEFAULT;"
        "INSERT INTO pgboss.job (name, priority, data, state, start_after, created_on) VALUES"
        " ('mail', 100, '{\"n\": 1}', 'created', now(), now() - interval '2 s'), ('mail', 0, NULL, 'retry',"
        " now() + interval '1 hour', now()), ('mail', 0, '{\"n\": 3}', 'active', now(), now())"
    )
    with pytest.raises(asyncpg.UndefinedObjectError, match='there is no topic "mail"'):
        await moved(db, "pg-boss.md")
    await make(url, "mail")
    assert await moved(db, "pg-boss.md") == [("mail", '{"n": 1}', 9, False), ("mail", "null", 0, True)]
    assert await db.fetchval("SELECT string_agg(state::text, ' ') FROM pgboss.job") == "active"


async def make(url: str, topic: str) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, topic, resolve(topic, AskedSettings(type="queue")))


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
    command = ["bash", "-euo", "pipefail", "-c", block("jqueue-queue-ti-topics.md", "bash")]
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
