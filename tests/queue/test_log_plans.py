"""What a log's statements cost: the same at the first record as behind a hundred thousand, while an old snapshot keeps
all that was evicted and every former state from being cleaned up, and whatever the statistics say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from app.base.db.pool import PLANNER
from app.kernel.logs import log
from app.kernel.logs.log import AppendPart, Ask, DeletionPlace, Limits, TagMatch
from app.kernel.model import Batch, Topic
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session
from tests.queue.test_plans import held_snapshot

N = 100
CAP = 1_000
LIMITS = Limits(records=CAP)
# Pages that a call for N records may look at: about twice what was measured on 18.
BOUNDS = {"append_records": 1_100, "read_records": 40, "log_states": 8, "newest": 20, "read_jobs": 8, "state": 16}


class World:
    """A database with a log that has a cap, and its statements prepared on one session with the hot pools' settings."""

    def __init__(self, db: Session, url: str, policy: Policy) -> None:
        self.db = db
        self.url = url
        self.topic: Topic = policy.topic

    async def append(self, batches: int) -> None:
        for _ in range(batches):
            await log.append(self.db, self.topic, Batch(payloads=[b"x" * 200] * N), [AppendPart(N, 200 * N)], LIMITS)

    async def pages(self, *, after: int = 0) -> dict[str, int]:
        """How many pages each statement looks at, for N records behind a cursor."""
        topic = self.topic
        nothing: list[list[object]] = [[]] * 3
        arguments: dict[str, tuple[object, ...]] = {
            "append_records": (
                topic.name, topic.id, [b"x" * 200] * N, *nothing, [N], [200 * N], [None], CAP, 0, False, 0, 0,
            ),
            "read_records": (topic.name, topic.id, after, N, 2**20, [], 10_000, 0, True, True, True),
            "log_states": ([topic.name], [topic.id], [0], 10_000),
            "newest": ([topic.name], [topic.id], [topic.id], [topic.sequence]),
            "read_jobs": (topic.name, 0, 1_000, N, 2**20, [], 10_000, True, True, True),
            "state": ([topic.name], [topic.id], [topic.sequence], 1),
        }  # fmt: skip
        found = {}
        for name, given in arguments.items():
            for _ in range(2):  # the first reads pages in, and sets hint bits
                plan = await plans.explain(self.db, statements.named(name), *given)
            assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
            found[name] = plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"]
        return found


@asynccontextmanager
async def new_world(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[World]:
    url = await new_database()
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, "busy", resolve("busy", AskedSettings(type="log")))
        policy = await store.get(pool, "busy", DEFAULTS)
    assert policy is not None
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        for table in ("records", "log_state"):
            await db.execute(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = false)")
        world = World(db, url, policy)
        for name in BOUNDS:
            await plans.prepare(db, statements.named(name))
        yield world
    finally:
        await db.close()


def above(pages: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in pages.items() if count > BOUNDS[name]}


@pytest.mark.parametrize("analyzed", [False, True])
async def test_it_stays_as_it_was_while_a_snapshot_is_held(
    analyzed: bool, new_database: Callable[[], Awaitable[str]]
) -> None:
    async with new_world(new_database) as world:
        if analyzed:
            await world.db.execute("ANALYZE")
        for _ in range(7):  # plans are made, and kept, while there is nothing
            await world.pages()
        await world.append(20)
        async with held_snapshot(world.url):
            before = await world.pages()
            assert above(before) == {}
            await world.append(300)
            assert await world.db.fetchval("SELECT count(*) FROM holdfast.records") == CAP
            after = await world.pages()
            assert above(after) == {}
            assert above(await world.pages(after=31_500)) == {}
            # The control: who begins at the first seq walks over all that was evicted.
            rows = await world.db.fetch(
                "EXPLAIN (ANALYZE, BUFFERS) SELECT seq FROM holdfast.records WHERE topic = 'busy' ORDER BY seq LIMIT 1"
            )
            walked = int(rows[2 if "Buffers" in rows[2][0] else 1][0].partition("hit=")[2].split()[0])
            assert walked > 20 * BOUNDS["log_states"]


async def test_a_deletion_by_tag_finds_its_records_by_their_tags(new_database: Callable[[], Awaitable[str]]) -> None:
    async with new_world(new_database) as world:
        for _ in range(50):
            await log.append(world.db, world.topic, Batch(payloads=[b"1"] * N), [AppendPart(N, N)], Limits())
        tags = Batch(payloads=[b"1"] * 3, tags=["a:1", "a:2", "b"])
        await log.append(world.db, world.topic, tags, [AppendPart(3, 3)], Limits())
        await plans.prepare(world.db, statements.named("delete_records"))
        for exact, prefix in (("b", None), (None, "a:")):
            given = (world.topic.name, world.topic.id, 10**6, exact, prefix, "", 0, 5_000)
            for _ in range(2):
                plan = await plans.explain(world.db, statements.named("delete_records"), *given)
            assert plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"] < 60
        done = await log.delete(world.db, world.topic, TagMatch(prefix="a:"), DeletionPlace(), upto=10**6, limit=5_000)
        assert (done.count, done.next) == (2, None)


async def test_reading_by_pieces_gives_what_reading_at_once_gives(new_database: Callable[[], Awaitable[str]]) -> None:
    async with new_world(new_database) as world:
        await world.append(3)
        seqs: list[int] = []
        at = 0
        while at < 300:
            read = await log.read(world.db, world.topic, Ask(after=at, limit=7, max_bytes=1_000), 0)
            assert read is not None
            seqs += read[1].seqs
            at = read[1].next_seq
            assert len(read[1].seqs) <= 5  # 200 bytes each
        assert seqs == list(range(1, 301))
