"""Readings that pages share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.engine import kept
from app.engine.kept import Kept

LONG = 30.0


class Reading:
    """One that ends when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_once = self.most_at_once = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.may_end.wait()
        finally:
            self.at_once -= 1
        return self.begun


@pytest.fixture
async def shelf() -> AsyncIterator[Kept]:
    made = Kept()
    yield made
    await made.close()


async def test_who_asks_at_once_or_soon_after_shares_a_reading(shelf: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()
    asked = [asyncio.create_task(shelf.get("a", reading, LONG)) for _ in range(5)]
    await asyncio.sleep(0)
    reading.may_end.set()
    assert await asyncio.gather(*asked) == [1] * 5
    assert await shelf.get("a", reading, LONG) == 1
    assert await shelf.get("b", reading, LONG) == 2
    monkeypatch.setattr(kept, "FRESH_SECONDS", -1.0)
    assert [await shelf.get("c", reading, LONG) for _ in range(2)] == [3, 4]


async def test_who_has_no_patience_gets_nothing_and_the_next_one_the_answer(shelf: Kept) -> None:
    reading = Reading()
    assert await shelf.get("a", reading, 0.01) is None
    reading.may_end.set()
    assert await shelf.get("a", reading, LONG) == 1


async def test_few_run_at_once_and_few_are_kept(shelf: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", 5)
    reading = Reading()
    asked = [asyncio.create_task(shelf.get(n, reading, LONG)) for n in range(6)]
    await asyncio.sleep(0.01)
    assert (reading.begun, await asked[5]) == (kept.AT_ONCE, None)  # more than MOST wait for nothing
    reading.may_end.set()
    await asyncio.gather(*asked)
    assert (reading.begun, reading.most_at_once) == (5, kept.AT_ONCE)
    await shelf.get(5, reading, LONG)
    assert await shelf.get(4, reading, LONG) == 5
    assert await shelf.get(0, reading, LONG) == 7  # the oldest has made room


async def test_what_fails_is_not_kept(shelf: Kept) -> None:
    async def fail() -> int:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        await shelf.get("a", fail, LONG)
    reading = Reading()
    reading.may_end.set()
    assert await shelf.get("a", reading, LONG) == 1
