"""Tokens: whose signature counts, for how long, and by which algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest

from app.errors import Unauthorized
from app.http.signin.people import User
from app.http.signin.tokens import Tokens

SECRET, OTHER = b"s" * 32, b"o" * 32
ANN = User("1", "ann", 3, is_admin=False, grants=[])


def forged(secret: Any = SECRET, algorithm: str = "HS256", **claims: Any) -> bytes:
    now = int(time.time())
    whole = {"iss": "holdfast", "sub": "1", "epoch": 3, "iat": now, "exp": now + 60, **claims}
    return jwt.encode({k: v for k, v in whole.items() if v is not None}, secret, algorithm=algorithm).encode()


def test_a_token_says_whose_it_is_and_until_when() -> None:
    claims = Tokens(SECRET).read(Tokens(SECRET).make(ANN, 60).encode())
    assert claims is not None
    assert (claims.user_id, claims.epoch) == ("1", 3)
    assert 50 < claims.until - time.monotonic() <= 60


NONSENSE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "three parts": lambda: b"a.b.c",
    "no text": lambda: b"\xff\xfe.a.b",
    "very long": lambda: b"eyJ" * 3_000,
    "another secret": lambda: forged(OTHER),
    "another algorithm": lambda: forged(SECRET, "HS512"),
    "no algorithm": lambda: forged(None, "none"),
    "another issuer": lambda: forged(iss="other"),
    "no end": lambda: forged(exp=None),
    "no beginning": lambda: forged(iat=None),
    "no user": lambda: forged(sub=None),
    "a user by number": lambda: forged(sub=1),
    "no epoch": lambda: forged(epoch=None),
    "an epoch in words": lambda: forged(epoch="x"),
    "cut off": lambda: forged()[:-2],
}


@pytest.mark.parametrize("token", NONSENSE.values(), ids=NONSENSE)
def test_anything_else_is_none(token: Callable[[], bytes]) -> None:
    """Each made when it is read: one that has expired meanwhile is another case."""
    assert Tokens(SECRET).read(token()) is None


def test_one_that_is_over_says_so() -> None:
    with pytest.raises(Unauthorized, match="expired"):
        Tokens(SECRET).read(forged(exp=int(time.time()) - 1))


def test_a_token_for_a_stream_and_one_of_a_user_are_not_taken_for_each_other() -> None:
    """Whatever else they say: it is their audience that counts."""
    tokens = Tokens(SECRET)
    for_events = forged(aud="user-events")  # with an epoch, as a user's has it
    assert tokens.read(for_events) is None
    said = tokens.read_for_events(for_events)
    assert said is not None
    assert said.user_id == "1"
    assert tokens.read_for_events(forged(aud="something else")) is None
    assert tokens.read_for_events(forged()) is None
    with pytest.raises(Unauthorized, match="Request a new one"):
        tokens.read_for_events(forged(aud="user-events", exp=int(time.time()) - 1))
