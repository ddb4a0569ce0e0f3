"""Users' tokens: JWTs, signed with HS256 only."""

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
USER_EVENTS: Final = "user-events"  # audience of the application's users: valid for their stream and at /in
PAGES: Final = "pages"  # audience of sessions of the admin pages
PAGES_SECONDS: Final = 12 * 3600


class TokenClaims(msgspec.Struct, frozen=True):
    """The claims of a user's token: the owner's id, the epoch of the owner's password, and the end on the monotonic
    clock."""

    user_id: str
    epoch: int
    until: float


class EventsTokenClaims(msgspec.Struct, frozen=True):
    """The claims of a token for a user's events: the application's id of the user, and the end as in TokenClaims."""

    user_id: str
    until: float


class SessionClaims(msgspec.Struct, frozen=True):
    """The claims of a session of the admin pages: the id of its owner (a user or key), the epoch of a user's password,
    the seal of a key ("" for a user), and the end as in TokenClaims."""

    owner_id: str
    epoch: int
    seal: str
    until: float


class Tokens:
    """Makes and reads tokens with one secret."""

    def __init__(self, secret: bytes) -> None:
        import jwt  # noqa: PLC0415  (start time: a service without users loads none of it)

        self.secret = secret
        self._jwt = jwt

    def make(self, user: User, seconds: int) -> str:
        """A token for a user, valid for `seconds`."""
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
        """The claims of a token; None if this secret did not sign it. Raises Unauthorized if it has expired."""
        return self._read(
            token,
            lambda claims, until: TokenClaims(claims["sub"], int(claims["epoch"]), until),
            "This token has expired. Sign in again. Refresh a token before it expires.",
        )

    def make_for_events(self, user_id: str, seconds: int) -> tuple[str, int]:
        """A token for the events of one of the application's users, valid for `seconds`, and its end in s since
        1970."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": USER_EVENTS, "sub": user_id, "iat": now, "exp": now + seconds}
        return self._jwt.encode(claims, self.secret, algorithm=ALGORITHM), now + seconds

    def read_for_events(self, token: bytes) -> EventsTokenClaims | None:
        """The claims of a token for events; None and errors as `read`."""
        return self._read(
            token,
            lambda claims, until: EventsTokenClaims(claims["sub"], until),
            "This token has expired. Request a new one.",
            audience=USER_EVENTS,
        )

    def make_for_pages(self, owner: User | Key) -> str:
        """A session of the admin pages for a user or key."""
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

    def read_for_pages(self, token: bytes) -> SessionClaims | None:
        """The claims of a session; None and errors as `read`."""
        return self._read(
            token,
            lambda claims, until: SessionClaims(claims["sub"], int(claims["epoch"]), str(claims["key"]), until),
            "This session is over. Sign in again.",
            audience=PAGES,
        )

    def seal(self, digest: bytes) -> str:
        """A keyed hash of a key's digest, for sessions. The digest itself would reveal a short key of the environment
        to guessing."""
        return hmac.digest(self.secret, b"key\0" + digest, hashlib.sha256).hex()

    def proof(self, token: bytes) -> str:
        """The CSRF token of a session, which forms send."""
        return hmac.digest(self.secret, b"form\0" + token, hashlib.sha256).hex()

    def _read(
        self, token: bytes, convert: Callable[[dict[str, Any], float], Said], over: str, audience: str | None = None
    ) -> Said | None:
        """The claims and end of a valid token, converted by `convert`. None for a token with another audience, or with
        any audience if none is expected."""
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
            return convert(claims, time.monotonic() + claims["exp"] - time.time())
        except self._jwt.ExpiredSignatureError:
            raise Unauthorized(over) from None
        except (self._jwt.InvalidTokenError, KeyError, TypeError, ValueError):
            return None
