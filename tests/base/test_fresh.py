"""Readings that are shared."""

from __future__ import annotations

import asyncio

import pytest

from app.base.fresh import Fresh

LONG = 30.0


class Reading:
    """One that ends when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_once = self.most_at_once = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        mine = self.begun
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.may_end.wait()
        finally:
            self.at_once -= 1
        return mine


class Failing:
    def __init__(self) -> None:
        self.begun = 0

    async def __call__(self) -> int:
        self.begun += 1
        raise OSError("away")


def at_once() -> Reading:
    reading = Reading()
    reading.may_end.set()
    return reading


async def test_who_asks_at_once_or_soon_after_shares_a_reading() -> None:
    fresh: Fresh[str, int] = Fresh(LONG)
    reading = Reading()
    asked = [asyncio.create_task(fresh.get("a", reading)) for _ in range(5)]
    await asyncio.sleep(0)
    reading.may_end.set()
    assert await asyncio.gather(*asked) == [1] * 5
    assert (await fresh.get("a", reading), await fresh.within("a", reading, LONG), fresh.peek("a")) == (1, 1, 1)
    assert await fresh.get("b", reading) == 2


async def test_how_long_a_value_is_good() -> None:
    reading = at_once()
    fresh = Fresh[str, int](0.0)
    assert [await fresh.get("a", reading) for _ in range(2)] == [1, 2], "one that is too old is read again"
    assert fresh.peek("a") is None

    async def slow() -> int:
        await asyncio.sleep(0.02)
        return await reading()

    long = Fresh[str, int](0.0, share=1_000.0)
    assert [await long.get("a", slow) for _ in range(2)] == [3, 3], "one that took long is good for longer"
    kept = Fresh[str, int](0.0, until=lambda _value: asyncio.get_running_loop().time() + LONG)
    assert [await kept.get("a", reading) for _ in range(2)] == [4, 4], "the value says until when"
    never = Fresh[str, int](LONG, until=lambda _value: 0.0)
    assert [await never.get("a", reading) for _ in range(2)] == [5, 6]


async def test_none_is_a_value_too() -> None:
    fresh: Fresh[str, None] = Fresh(LONG)
    begun = 0

    async def nothing() -> None:
        nonlocal begun
        begun += 1

    for _ in range(2):
        await fresh.get("a", nothing)
        await fresh.within("a", nothing, LONG)
    assert begun == 1


async def test_who_has_no_patience_or_is_cancelled_ends_no_reading() -> None:
    fresh, reading = Fresh[str, int](LONG), Reading()
    assert await fresh.within("a", reading, 0.01) is None
    asked = asyncio.create_task(fresh.get("a", reading))
    await asyncio.sleep(0)
    asked.cancel()
    reading.may_end.set()
    assert await fresh.within("a", reading, LONG) == 1


async def test_few_run_at_once_and_few_are_kept() -> None:
    fresh, reading = Fresh[int, int](LONG, most=5, at_once=2), Reading()
    asked = [asyncio.create_task(fresh.within(n, reading, LONG)) for n in range(6)]
    await asyncio.sleep(0.01)
    assert (reading.begun, await asked[5]) == (2, None)  # who finds as many under way waits for nothing
    reading.may_end.set()
    await asyncio.gather(*asked)
    assert (reading.begun, reading.most_at_once) == (5, 2)
    await fresh.get(5, reading)
    assert await fresh.get(4, reading) == 5
    assert await fresh.get(0, reading) == 7  # the oldest has made room


async def test_what_fails_is_not_kept() -> None:
    fresh, failing = Fresh[str, int](LONG), Failing()
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await fresh.get("a", failing)
        with pytest.raises(OSError, match="away"):
            await fresh.within("a", failing, LONG)
    assert failing.begun == 4
    assert await fresh.get("a", at_once()) == 1


async def test_after_a_failure_nobody_reads_for_a_while() -> None:
    fresh, failing = Fresh[str, int](LONG, retry=0.05), Failing()
    with pytest.raises(OSError, match="away"):
        await fresh.within("a", failing, LONG)
    assert await fresh.within("a", failing, LONG) is None
    await asyncio.sleep(0.06)
    assert await fresh.within("a", at_once(), LONG) == 1
    assert failing.begun == 1


async def test_what_was_forgotten_while_it_was_read_is_not_kept() -> None:
    fresh, early, late = Fresh[str, int](LONG), Reading(), at_once()
    late.begun = 10
    asked = asyncio.create_task(fresh.get("a", early))
    await asyncio.sleep(0)
    fresh.forget("a")
    assert await fresh.get("a", late) == 11
    early.may_end.set()
    assert await asked == 1
    assert fresh.peek("a") == 11
    fresh.forget_all()
    assert fresh.peek("a") is None


async def test_it_stops_what_it_reads_and_waits_for_it() -> None:
    fresh, reading = Fresh[str, int](LONG), Reading()
    asked = [asyncio.create_task(fresh.get(key, reading)) for key in "ab"]
    await asyncio.sleep(0)
    fresh.forget("b")
    await fresh.stop()
    assert reading.at_once == 0
    assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*asked, return_exceptions=True))
