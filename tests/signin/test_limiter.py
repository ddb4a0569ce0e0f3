"""Ten tries a minute of a name from an address, fifty of the address, counted by the database for all processes."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from pathlib import Path
from typing import Final

import pytest

from app.base.db.pool import Pools
from app.http.signin import sessions
from app.http.signin.sessions import Limiter, TooManyTries
from tests.routes import document

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def address() -> str:
    """An address that no other test has: the worker's database counts for all of them."""
    return f"host-{secrets.token_hex(8)}"


def test_the_manual_says_both_bounds() -> None:
    assert (sessions.MOST_TRIES, sessions.MOST_TRIES_OF_ADDRESS) == (10, 50)
    pages = [(ROOT / "docs" / page).read_text() for page in ("semantics.md", "keys.md")]
    for text in (*pages, json.dumps(document())):
        assert re.search(r"\bten tries\b.{0,100}\bfifty\b", " ".join(text.split()))


async def take(tries: Limiter, address: str, count: int, name: str = "ann") -> None:
    for _ in range(count):
        await tries.take(name, address)


async def test_the_eleventh_within_a_minute_is_too_many_for_every_process(pools: Pools, address: str) -> None:
    one, other = Limiter(pools.rest), Limiter(pools.rest)
    await take(one, address, 5)
    await take(other, address, 5)
    for tries in (one, other, Limiter(pools.rest)):
        with pytest.raises(TooManyTries) as error:
            await tries.take("ann", address)
        assert error.value.detail == {"limit": "sign_in_tries", "max": 10}
    await one.take("bob", address)
    ended = await asyncio.gather(
        *((one, other)[n % 2].take("ann", f"{address}-2") for n in range(30)), return_exceptions=True
    )
    assert sum(result is None for result in ended) == 10, "those at the same time are each counted"


async def test_a_minute_later_there_are_ten_again(pools: Pools, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "TRY_SECONDS", 0)
    await take(Limiter(pools.rest), address, 30)
    monkeypatch.setattr(sessions, "TRY_SECONDS", 60)
    clock = [0.0]
    tries = Limiter(pools.rest, clock=lambda: clock[0])
    await take(tries, address, 10)
    with pytest.raises(TooManyTries):
        await tries.take("ann", address)
    assert len(tries._refused) == 1
    clock[0] = 60.0  # it asks the database again, whose minute is not over
    with pytest.raises(TooManyTries):
        await tries.take("ann", address)


async def test_a_process_asks_once_after_a_refusal_and_remembers_a_bounded_number(
    pools: Pools, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = Limiter(pools.rest)
    await take(tries, address, 10)
    counted = "SELECT sum(tries) FROM holdfast.sign_in_tries WHERE who = $1"
    key, *_ = sessions._keys("ann", address)
    for _ in range(50):
        with pytest.raises(TooManyTries):
            await tries.take("ann", address)
    assert await pools.rest.fetchval(counted, key) == 11
    monkeypatch.setattr(sessions, "MOST_REFUSED", 3)
    monkeypatch.setattr(sessions, "MOST_TRIES", 0)
    for n in range(5):
        with pytest.raises(TooManyTries):
            await tries.take(f"u{n}", address)
    assert list(tries._refused) == [sessions._keys(f"u{n}", address)[0] for n in (2, 3, 4)]


async def test_an_address_has_fifty_whatever_the_names(pools: Pools, address: str) -> None:
    tries = Limiter(pools.rest)
    for n in range(50):
        await tries.take(f"u{n}", address)
    with pytest.raises(TooManyTries) as error:
        await Limiter(pools.rest).take("ann", address)
    assert error.value.detail == {"limit": "sign_in_tries", "max": 50}


async def test_who_signs_in_after_all_begins_anew_and_what_is_given_back_does_not_count(
    pools: Pools, address: str
) -> None:
    tries = Limiter(pools.rest)
    await take(tries, address, 10)
    await tries.reset("ann", address)
    await take(tries, address, 9)
    for _ in range(12):
        await tries.take("ann", address)
        await tries.give_back("ann", address)
    await take(Limiter(pools.rest), address, 1)
    with pytest.raises(TooManyTries):
        await tries.take("ann", address)


async def test_success_clears_the_name_and_not_the_address(pools: Pools, address: str) -> None:
    """Nor do more tries fit at the address for it: one that has an account may not guess others' with it."""
    tries = Limiter(pools.rest)
    for n in range(49):
        await tries.take(f"u{n}", address)
    for _ in range(12):
        await tries.take("ann", address)
        await tries.reset("ann", address)
    await tries.take("ann", address)
    with pytest.raises(TooManyTries):
        await tries.take("bob", address)


async def test_good_tries_at_the_same_time_leave_nothing_at_the_address(pools: Pools, address: str) -> None:
    """Who waits for another's count takes back what that one has left."""
    tries = Limiter(pools.rest)

    async def sign_in(n: int) -> None:
        await tries.take(f"u{n}", address)
        await tries.reset(f"u{n}", address)

    await asyncio.gather(*(sign_in(n) for n in range(40)))
    left = await pools.rest.fetchval(
        "SELECT tries FROM holdfast.sign_in_tries WHERE who = $1", sessions._keys("", address)[1]
    )
    assert left == 0


async def test_refusals_of_a_name_are_not_the_addresses(pools: Pools, address: str) -> None:
    """Processes that don't know of a refusal yet ask, each of them once."""
    await take(Limiter(pools.rest), address, 10)
    for _ in range(45):
        with pytest.raises(TooManyTries):
            await Limiter(pools.rest).take("ann", address)
    await Limiter(pools.rest).take("bob", address)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8:0:0::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool) -> None:
    assert (sessions._keys("ann", one) == sessions._keys("ann", other)) is same


def test_a_name_is_not_kept_as_it_was_typed() -> None:
    keys = sessions._keys("x" * 100_000, "10.0.0.1")
    assert [len(key) for key in keys] == [32, 32]
    assert len({*keys, *sessions._keys("", "10.0.0.1"), *sessions._keys("address", "10.0.0.1")}) == 4


async def test_what_is_over_is_swept_and_what_is_too_many(
    pools: Pools, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pools.rest.acquire() as db, db.transaction():
        await db.execute("DELETE FROM holdfast.sign_in_tries")
        tries = Limiter(db)  # type: ignore[arg-type]  # what it needs of a pool a connection has
        monkeypatch.setattr(sessions, "TRY_SECONDS", 0)
        await tries.take("over", address)
        monkeypatch.setattr(sessions, "TRY_SECONDS", 60)
        await tries.take("ann", f"{address}-2")
        assert (
            await sessions.sweep_tries(db, 1),
            await sessions.sweep_tries(db, 9),
            await sessions.sweep_tries(db, 9),
        ) == (1, 1, 0)
        monkeypatch.setattr(sessions, "MOST_COUNTED", 2)
        monkeypatch.setattr(sessions, "TRY_SECONDS", 30)
        await tries.take("ann", f"{address}-3")
        assert (await sessions.sweep_tries(db, 9), await sessions.sweep_tries(db, 9)) == (2, 0)
