"""The columns of holdfast.topics are what the settings are declared to be."""

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec
import pytest

from app.base.db.pool import Pools
from app.kernel.topics import store
from app.kernel.topics.declarations import Declaration
from app.kernel.topics.policy import DEFAULTS, AskedSettings, resolve
from app.kernel.topics.settings import DECLARED, FIELDS, Chosen, Config, TopicType

NUMBERS = [one for one in DECLARED.values() if one.setting.bounds or one.setting.clamp]
WORDS = [one for one in DECLARED.values() if one.words]
REFUSED = (
    asyncpg.CheckViolationError,
    asyncpg.NumericValueOutOfRangeError,
    asyncpg.InvalidTextRepresentationError,
)


async def fits(pools: Pools, topic: str, one: Declaration, value: object) -> bool:
    """Whether a column can hold it."""
    async with pools.rest.acquire() as db:
        transaction = db.transaction()
        await transaction.start()
        try:
            await db.execute(f"UPDATE holdfast.topics SET {one.name} = '{value}' WHERE name = '{topic}'")
        except REFUSED:
            return False
        finally:
            await transaction.rollback()
    return True


async def test_a_column_has_the_default_of_v0(pools: Pools, topic: str) -> None:
    await pools.rest.execute("INSERT INTO holdfast.topics (name, type) VALUES ($1, 'log')", topic)
    policy = await store.get(pools.rest, topic, DEFAULTS)
    assert policy is not None
    assert policy.chosen == msgspec.convert(msgspec.to_builtins(Config()), Chosen)


@pytest.mark.parametrize("one", NUMBERS, ids=lambda one: one.name)
async def test_a_column_has_the_bounds_of_its_setting(pools: Pools, topic: str, one: Declaration) -> None:
    await store.put(pools.rest, topic, resolve(topic, AskedSettings(type="queue")))
    least, most = one.setting.bounds or one.setting.clamp or (0, 0)
    found = [await fits(pools, topic, one, value) for value in (least - 1, least, most, most + 1)]
    assert found == [False, True, True, False]


@pytest.mark.parametrize("one", WORDS, ids=lambda one: one.name)
async def test_a_column_has_the_words_of_its_setting(pools: Pools, topic: str, one: Declaration) -> None:
    await store.put(pools.rest, topic, resolve(topic, AskedSettings(type="queue")))
    assert [await fits(pools, topic, one, word) for word in (*one.words, "other")] == [True] * len(one.words) + [False]


def another(one: Declaration) -> Any:
    """A value that is not the default."""
    if one.words:
        return next(word for word in one.words if word != msgspec.to_builtins(one.stored))
    if one.type is bool:
        return not one.stored
    if one.type is int:
        least, most = one.setting.bounds or one.setting.clamp or (0, 0)
        return most if one.stored != most else least
    return {
        "dead_letter": "another",
        "tenant_weights": {"a": 2},
        "tenant_limits": {"a": 2},
        "accepts": ("image/png",),
        "backoff": {"kind": "fixed"},
        "webhook": {"url": "https://example.com/"},
    }[one.name]


@pytest.mark.parametrize("one", DECLARED.values(), ids=DECLARED)
async def test_a_setting_is_stored_and_replaced(pools: Pools, topic: str, one: Declaration) -> None:
    plain = msgspec.to_builtins(Chosen(type=TopicType.QUEUE))
    chosen = msgspec.convert(plain | ({} if one.name == "type" else {one.name: another(one)}), Chosen)
    assert one.name == "type" or getattr(chosen, one.name) != one.stored
    for config in (msgspec.convert(plain, Chosen), chosen):  # made, then replaced
        await store.put(pools.rest, topic, config)
        policy = await store.get(pools.rest, topic, DEFAULTS)
        assert policy is not None
        assert policy.chosen == config
    await store.delete(pools.rest, topic, if_empty=False)
    await store.put(pools.rest, topic, chosen)
    policy = await store.get(pools.rest, topic, DEFAULTS)
    assert policy is not None
    assert policy.chosen == chosen


def test_every_field_is_declared() -> None:
    assert set(FIELDS) - set(DECLARED) == {"configured"}
