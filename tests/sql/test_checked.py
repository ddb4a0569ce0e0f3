"""Topics with a schema: what is inserted waits until a process of the service has looked at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import Pools, open_pools
from app.features.inbox import inbox
from app.kernel.claim.walk import Claimer
from app.kernel.engine import Engine
from app.kernel.schemas.schemas import text_of
from app.kernel.topics import store
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.queue.calls import Session, put, take, until
from tests.queue.calls import batch as batch_of
from tests.queue.tallies import tallied
from tests.sql.conftest import Db

NUMBERS = text_of('{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
INSERT = "INSERT INTO holdfast.inbox (topic, payload_text) SELECT $1, unnest($2::text[])"


@pytest.fixture(scope="module")
async def database_url(new_database: Callable[[], Awaitable[str]]) -> str:
    """A database of their own: services of other tests would look at these rows, too."""
    return await new_database()


@pytest.fixture(scope="module")
async def pools(database_url: str) -> AsyncIterator[Pools]:
    pools = await open_pools(database_url, hot=4, rest=4, prepared_statements=True)
    yield pools
    await pools.close(5)


@pytest.fixture
async def engine(pools: Pools) -> AsyncIterator[Engine]:
    engine = Engine(pools, Policies(pools.rest), max_waiting=1_000)
    yield engine
    engine.stop()
    await engine.drain()


@pytest.fixture
async def checked(pools: Pools, topic: str) -> Policy:
    """A queue with a schema."""
    return await put_queue(pools, topic)


async def put_queue(pools: Pools, topic: str, schema: object = NUMBERS, **settings: object) -> Policy:
    asked = resolve(topic, AskedSettings(type="queue", **settings))
    await store.put(pools.rest, topic, asked, schema=schema)  # type: ignore[arg-type]
    return await Policies(pools.rest).queue(topic)


async def rejects(db: Session, policy: Policy) -> list[tuple[bytes, str]]:
    rows = await db.fetch("SELECT payload, reason FROM holdfast.inbox_rejects WHERE topic = $1", policy.topic.name)
    return [(row["payload"], row["reason"]) for row in rows]


async def unchecked(db: Session, policy: Policy) -> int:
    return int(await db.fetchval("SELECT count(*) FROM holdfast.inbox_unchecked WHERE topic = $1", policy.topic.name))


async def test_what_fits_goes_in_and_the_rest_is_kept_with_the_reason(
    sql: Db, db: Session, pools: Pools, engine: Engine, checked: Policy
) -> None:
    rows = [f'{{"n":{n}}}' for n in range(1200)]
    rows[3] = '{"n":"three"}'
    await sql.execute(INSERT, checked.topic.name, rows)
    assert await take(db, checked, 1) == []
    while await unchecked(db, checked):
        await inbox.run_once(pools, engine)
    jobs = [job for _ in range(2) for job in await take(db, checked, 1000)]
    assert [job.payload.decode() for job in jobs] == [*rows[:3], *rows[4:]]
    [(payload, reason)] = await rejects(db, checked)
    assert payload == b'{"n":"three"}'
    assert reason.startswith("/n: ")
    assert engine.metrics.topic(checked.topic.name).unfit.value == 1
    assert await tallied(db, checked)


async def test_every_column_comes_through(sql: Db, db: Session, pools: Pools, engine: Engine, checked: Policy) -> None:
    await sql.execute(
        "INSERT INTO holdfast.inbox (topic, payload_text, metadata, tag, node, priority, ttl_ms, max_deliveries, key, "
        'run_at, tenant, "group", dedupe_id, user_id, webhook) '
        """VALUES ($1, '{"n":1}', '{"a":"b"}', 't', 'n', 3, 60000, 4, 'k', now() - interval '1 hour', 'acme', 'g', """
        "'d', 'u', 'https://example.org/')",
        checked.topic.name,
    )
    await inbox.run_once(pools, engine)
    found = await db.fetchrow("SELECT * FROM holdfast.jobs WHERE topic = $1", checked.topic.name)
    assert found is not None
    columns = ("tag", "producer", "priority", "max_deliveries", "key", "state", "tenant", "grp", "webhook", "metadata")
    assert [found[name] for name in columns] == [
        *("t", "n", 3, 4, "k", "ready", "acme", "g", "https://example.org/", '{"a": "b", "$user_id": "u"}')
    ]
    assert await db.fetchval("SELECT dedupe_id FROM holdfast.dedupe WHERE topic_id = $1", checked.topic.id) == "d"
    assert found["expires_at"] is not None


async def test_a_service_finds_them_soon(sql: Db, pools: Pools, engine: Engine, checked: Policy) -> None:
    following = inbox.loop(engine)
    following.start()
    try:
        waiting = asyncio.create_task(engine.claims.claim(Claimer(checked, "w", 1, 60_000), 30))
        await until(lambda: _parked(engine, checked), "it waits")
        await sql.execute(INSERT, checked.topic.name, ['{"n":1}'])
        [job] = await asyncio.wait_for(waiting, 10)  # a pass, and then a look: each within half a second and a little
        assert job.payload == b'{"n":1}'
    finally:
        await following.stop()


async def test_a_schema_that_is_changed_in_between(
    sql: Db, db: Session, pools: Pools, engine: Engine, checked: Policy
) -> None:
    """What an engine remembers of the schema does not count."""
    await sql.execute(INSERT, checked.topic.name, ['{"n":1}'])
    await engine.policies.get(checked.topic.name)
    await put_queue(pools, checked.topic.name, text_of('{"required": ["m"]}'))
    while await unchecked(db, checked):
        await inbox.run_once(pools, engine)
    assert await take(db, checked) == []
    assert len(await rejects(db, checked)) == 1


async def test_a_topic_that_is_deleted_or_full_meanwhile(
    sql: Db, db: Session, pools: Pools, engine: Engine, topic: str
) -> None:
    full = await put_queue(pools, topic + "-full", max_depth=1)
    gone = await put_queue(pools, topic + "-gone")
    await put(db, full, batch_of(1))
    for policy in (full, gone):
        await sql.execute(INSERT, policy.topic.name, ['{"n":1}'])
    await store.delete(pools.rest, gone.topic.name, if_empty=False)
    await inbox.run_once(pools, engine)
    assert await unchecked(db, full) == 1
    [(_, reason)] = await rejects(db, gone)
    assert "there is no topic" in reason
    [job] = await take(db, full)
    await db.execute("SELECT holdfast.complete($1)", f"{full.topic.name}:{job.seq}:lease_{job.lease}")
    await inbox.run_once(pools, engine)
    assert await unchecked(db, full) == 0
    assert len(await take(db, full)) == 1


async def test_a_crash_between_loses_and_doubles_nothing(
    sql: Db, db: Session, pools: Pools, checked: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sql.execute(INSERT, checked.topic.name, ['{"n":1}', '{"n":"no"}'])
    engine = Engine(pools, Policies(pools.rest), max_waiting=10)

    async def fails(*_: object) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as patched:
        patched.setattr("app.features.inbox.inbox.reject", fails)
        with pytest.raises(ConnectionResetError):
            await inbox.run_once(pools, engine)
    assert await unchecked(db, checked) == 2
    assert await take(db, checked) == []
    await inbox.run_once(pools, engine)
    assert len(await take(db, checked, 9)) == len(await rejects(db, checked)) == 1


async def test_enqueue_says_where_to_go(sql: Db, checked: Policy) -> None:
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="has a schema"):
        await sql.execute("""SELECT holdfast.enqueue($1, '{"n":1}')""", checked.topic.name)


async def _parked(engine: Engine, queue: Policy) -> bool:
    return engine.waiters.count(queue.topic.name) > 0
