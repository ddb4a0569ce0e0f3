"""Users of the application: their ids on jobs, their tokens, and CORS for their pages. docs/webhooks.md."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import HTTPConnection, Request

from app.errors import Unauthorized
from app.http.context import Context, context_of
from app.http.credentials import authorization, bearer
from app.http.fields import encode

MAX_USER_ID: Final = 128  # characters
USER_KEY: Final = "$user_id"  # in a job's metadata

UserId = Annotated[str, Meta(min_length=1, max_length=MAX_USER_ID, extra_json_schema={"pattern": "^[^\\u0000]*$"})]

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def with_user(metadata: str | None, user_id: str) -> str:
    """A job's metadata with the user's id added, as JSON."""
    if metadata is None:
        return encode({USER_KEY: user_id}).decode()
    return encode({**_object.decode(metadata), USER_KEY: user_id}).decode()


async def user_of_token(request: Request, context: Context) -> str | None:
    """The application's user whose token is in the Authorization header; None without a valid one.

    Raises Unauthorized for an expired token, unless the server is open.
    """
    directory = context.access.directory
    given = bearer(authorization(request))
    if given.count(b".") != 2:  # not a JWT: an API key
        return None
    try:
        claims = (await directory.signer()).read_for_events(given)
    except Unauthorized:
        if directory.guarded:
            raise
        return None
    return None if claims is None else claims.user_id


def allow_origin(request: HTTPConnection, *, exposed: str = "") -> dict[str, str]:
    """CORS headers for the request's origin, if HOLDFAST_INGEST_ORIGINS allows it. `exposed`: a response header that
    the page may read. Only for simple requests, which have no preflight."""
    allowed = context_of(request).origins
    if not allowed:
        return {}
    headers = {"vary": "origin"}
    origin = request.headers.get("origin", "")
    if origin and ("*" in allowed or origin.lower() in allowed):
        headers["access-control-allow-origin"] = origin
        if exposed:
            headers["access-control-expose-headers"] = exposed
    return headers
