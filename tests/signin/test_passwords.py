"""Passwords: their bounds, and that looking at one stops nothing else."""

from __future__ import annotations

import asyncio

import bcrypt
import pytest

from app.errors import InvalidRequest, Unavailable
from app.http.signin import users
from app.http.signin.users import Passwords


@pytest.mark.parametrize("password", ["eleven char", "x" * 73, "ü" * 37, "twelve char\0s"])
async def test_what_can_be_no_password(password: str) -> None:
    with pytest.raises(InvalidRequest):
        await Passwords(10).hash(password)


@pytest.mark.parametrize("password", ["twelve chars", "x" * 72, "ü" * 36])
async def test_what_can_be_one_matches_itself_alone(password: str) -> None:
    hashes = Passwords(10)
    kept = await hashes.hash(password)
    assert kept != await hashes.hash(password)
    assert await hashes.matches(kept, password)
    for other in (password[:-1], password + "x", password.swapcase(), ""):
        assert not await hashes.matches(kept, other)


async def test_a_user_that_there_is_not_matches_nothing_and_takes_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    real = bcrypt.checkpw

    def noting(given: bytes, kept: bytes) -> bool:
        asked.append(kept)
        return bool(real(given, kept))

    monkeypatch.setattr(bcrypt, "checkpw", noting)
    assert not await Passwords(10).matches(None, "whatever it is")
    assert [kept[:7] for kept in asked] == [b"$2b$10$"]


async def test_they_are_looked_at_off_the_loop_and_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MOST_HASHES_WAITING", 3)
    hashes = Passwords(10)
    kept = await hashes.hash("twelve chars")
    going = [asyncio.create_task(hashes.matches(kept, "twelve chars")) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in going), "the loop goes on meanwhile"
    with pytest.raises(Unavailable):
        await hashes.matches(kept, "twelve chars")
    assert await asyncio.gather(*going) == [True] * 3
    assert await hashes.matches(kept, "twelve chars")
