"""Users' tokens: JWTs, signed by HS256 and nothing else."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from app.base.keys import Key
from app.errors import Unauthorized

if TYPE_CHECKING:
    from app.http.signin.people import User

Said = TypeVar("Said")

ALGORITHM: Final = "HS256"
ISSUER: Final = "holdfast"
SECONDS: Final = 900
USER_EVENTS: Final = "user-events"  # of tokens of the application's users: good for their stream, and at /in
PAGES: Final = "pages"  # of those that are good for the admin pages
PAGES_SECONDS: Final = 12 * 3600


class TokenClaims(msgspec.Struct, frozen=True):
    """What a good token says: whose it is, made in which epoch of their password, and until when it is good, on the
    process's monotonic clock."""

    user_id: str
    epoch: int
    until: float


class Listens(msgspec.Struct, frozen=True):
    """What a good token for a stream says: whose events, an id of the application's own, and until when, as above."""

    user_id: str
    until: float


class Visits(msgspec.Struct, frozen=True):
    """What a good session of the admin pages says: whose it is, the id of a user or key; of a user the epoch of their
    password, of a key its seal, "" for a user; and until when, as above."""

    owner_id: str
    epoch: int
    seal: str
    until: float


class Tokens:
    """Makes and reads them with one secret."""

    def __init__(self, secret: bytes) -> None:
        import jwt  # noqa: PLC0415  (start time: a service without users loads none of it)

        self.secret = secret
        self._jwt = jwt

    def make(self, user: User, seconds: int) -> str:
        """A token for a user, good for so many seconds."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "sub": user.id,
            "username": user.name,
            "is_admin": user.is_admin,
            "epoch": user.epoch,
            "iat": now,
            "exp": now + seconds,
            "jti": secrets.token_hex(8),
        }
        return self._jwt.encode(claims, self.secret, algorithm=ALGORITHM)

    def read(self, token: bytes) -> TokenClaims | None:
        """What a token says; None for what is no token of this secret. Raises Unauthorized for one that is over."""
        return self._read(
            token,
            lambda claims, until: TokenClaims(claims["sub"], int(claims["epoch"]), until),
            "This token has expired: sign in again, or refresh it earlier.",
        )

    def make_for_events(self, user_id: str, seconds: int) -> tuple[str, int]:
        """A token for the events of one of the application's users, good for so many seconds; and until when, in s
        since 1970."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": USER_EVENTS, "sub": user_id, "iat": now, "exp": now + seconds}
        return self._jwt.encode(claims, self.secret, algorithm=ALGORITHM), now + seconds

    def read_for_events(self, token: bytes) -> Listens | None:
        """What such a token says; None for what is none of this secret. Raises Unauthorized for one that is over."""
        return self._read(
            token,
            lambda claims, until: Listens(claims["sub"], until),
            "This token has expired: ask for another.",
            audience=USER_EVENTS,
        )

    def make_for_pages(self, owner: User | Key) -> str:
        """A session of the admin pages: a user's, or a key's."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": PAGES,
            "sub": owner.id,
            "epoch": 0 if isinstance(owner, Key) else owner.epoch,
            "key": self.seal(owner.digest) if isinstance(owner, Key) else "",
            "iat": now,
            "exp": now + PAGES_SECONDS,
            "jti": secrets.token_hex(8),
        }
        return self._jwt.encode(claims, self.secret, algorithm=ALGORITHM)

    def read_for_pages(self, token: bytes) -> Visits | None:
        """What such a session says; None for what is none of this secret. Raises Unauthorized for one that is over."""
        return self._read(
            token,
            lambda claims, until: Visits(claims["sub"], int(claims["epoch"]), str(claims["key"]), until),
            "This session is over: sign in again.",
            audience=PAGES,
        )

    def seal(self, digest: bytes) -> str:
        """What stands for a key's digest in a session, and tells nothing of it: keys of the environment are anybody's
        choice, and may be short enough to be guessed by their digest."""
        return hmac.digest(self.secret, b"key\0" + digest, hashlib.sha256).hex()

    def proof(self, token: bytes) -> str:
        """What only a page that was made for a session can know: forms send it along."""
        return hmac.digest(self.secret, b"form\0" + token, hashlib.sha256).hex()

    def _read(
        self, token: bytes, say: Callable[[dict[str, Any], float], Said], over: str, audience: str | None = None
    ) -> Said | None:
        """What is made of a good token's claims and of when it ends. One for another audience, or for one where none is
        meant, is none."""
        required = ["exp", "iat", "iss", "sub", *(["aud"] if audience else [])]
        try:
            claims = self._jwt.decode(
                token,
                self.secret,
                algorithms=[ALGORITHM],
                issuer=ISSUER,
                audience=audience,
                options={"require": required},
            )
            return say(claims, time.monotonic() + claims["exp"] - time.time())
        except self._jwt.ExpiredSignatureError:
            raise Unauthorized(over) from None
        except (self._jwt.InvalidTokenError, KeyError, TypeError, ValueError):
            return None
