"""Tokens: whose signature counts, for how long, and by which algorithm."""

from __future__ import annotations

import time
from typing import Any

import jwt
import pytest

from app.errors import Unauthorized
from app.signin.people import User
from app.signin.tokens import Tokens

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


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"a.b.c",
        b"\xff\xfe.a.b",
        b"eyJ" * 3_000,
        forged(OTHER),
        forged(SECRET, "HS512"),
        forged(None, "none"),
        forged(iss="other"),
        forged(exp=None),
        forged(iat=None),
        forged(sub=None),
        forged(sub=1),
        forged(epoch=None),
        forged(epoch="x"),
        forged()[:-2],
    ],
)
def test_anything_else_is_none(token: bytes) -> None:
    assert Tokens(SECRET).read(token) is None


def test_one_that_is_over_says_so() -> None:
    with pytest.raises(Unauthorized, match="expired"):
        Tokens(SECRET).read(forged(exp=int(time.time()) - 1))
