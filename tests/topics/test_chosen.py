"""What a topic leaves open, and what is in effect then; also on the way back to a version that knows nothing open."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import asyncpg
import msgspec

from app.db import schema
from app.topics import store
from app.topics.asked import Asked, resolve
from app.topics.config import DEFAULTS, Defaults, in_effect, of_messages
from app.topics.settings import OnExhausted

BEFORE = "0006"


def test_what_was_chosen_goes_before_the_services_defaults() -> None:
    defaults = Defaults(max_retries=7, dlq_threshold=2, ttl_ms=5, lease_ms=600)
    config = in_effect("t", of_messages("t"), defaults)
    assert (config.max_retries, config.dlq_threshold, config.ttl_ms, config.lease_ms) == (7, 2, 5, 600)
    assert (config.max_deliveries, config.on_exhausted, config.dead_letter) == (2, OnExhausted.DEAD_LETTER, "t.dlq")
    chosen = msgspec.structs.replace(of_messages("t"), max_retries=1, dlq_threshold=0, ttl_ms=0, lease_ms=100)
    config = in_effect("t", chosen, defaults)
    assert (config.max_retries, config.dlq_threshold, config.ttl_ms, config.lease_ms) == (1, 0, 0, 100)
    assert (config.max_deliveries, config.on_exhausted, config.dead_letter) == (1, OnExhausted.FAIL, None)


def test_v0_leaves_nothing_open() -> None:
    config = resolve("t", Asked(type="queue"))
    assert in_effect("t", config, Defaults(9, 9, 9, 999)) == config


async def test_a_version_that_leaves_nothing_open_has_what_was_in_effect(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    url = await new_database()
    open_, expected = of_messages("t"), {}
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        for retries, threshold in itertools.product((None, 0, 1, 2, 5), (None, 0, 1, 2, 4)):
            name = f"t-{retries}-{threshold}"
            chosen = msgspec.structs.replace(open_, max_retries=retries, dlq_threshold=threshold)
            expected[name] = in_effect(name, chosen, DEFAULTS)
            await store.put(pool, name, chosen)
    await schema.downgrade(url, BEFORE)
    db = await asyncpg.connect(url)
    rows = await db.fetch("SELECT * FROM holdfast.topics")
    await db.close()
    assert len(rows) == len(expected)
    for row in rows:
        config = expected[row["name"]]
        assert (row["max_deliveries"], row["on_exhausted"]) == (config.max_deliveries, config.on_exhausted.value)
        assert row["dead_letter"] == config.dead_letter
        assert (row["ttl_ms"], row["lease_ms"]) == (config.ttl_ms, config.lease_ms)
