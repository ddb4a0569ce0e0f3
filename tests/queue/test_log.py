"""Reading a log at the kernel."""

from __future__ import annotations

from app.base.db.pool import Pools
from app.kernel.logs import log
from app.kernel.logs.log import AppendPart, Ask, DeletionPlace, Limits, TagMatch
from app.kernel.model import Batch
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, resolve


async def test_reading_by_pieces_gives_what_reading_at_once_gives(pools: Pools, topic: str) -> None:
    db = pools.rest
    await store.put(db, topic, resolve(topic, AskedSettings(type="log")))
    policy = await store.get(db, topic, DEFAULTS)
    assert policy is not None
    records = Batch(payloads=[b"x" * 200] * 300, tags=[f"{'ab'[n % 2]}:{n}" for n in range(300)])
    await log.append(db, policy.topic, records, [AppendPart(300, 60_000)], Limits())
    seqs: list[int] = []
    at = 0
    while at < 300:
        read = await log.read(db, policy.topic, Ask(after=at, limit=7, max_bytes=1_000), 0)
        assert read is not None
        seqs += read[1].seqs
        at = read[1].next_seq
        assert len(read[1].seqs) <= 5  # 200 bytes each
    assert seqs == list(range(1, 301))
    done = await log.delete(db, policy.topic, TagMatch(prefix="a:"), DeletionPlace(), upto=10**6, limit=5_000)
    assert (done.count, done.next) == (150, None)
