"""Users of the application: their ids on jobs, their tokens, and the pages on which they are. docs/webhooks.md."""

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
    """The text of a job's metadata with the id of the user that it is for."""
    if metadata is None:
        return encode({USER_KEY: user_id}).decode()
    return encode({**_object.decode(metadata), USER_KEY: user_id}).decode()


async def user_of_token(request: Request, context: Context) -> str | None:
    """The application's user whose token the request shows as Bearer; None where it shows none of those.

    Raises Unauthorized for a token that has expired, unless the server is open: there it counts as none.
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
    """The headers that let the page read the answer which has sent the request, if HOLDFAST_INGEST_ORIGINS names it;
    `exposed`: a header that it may read, too. There is no preflight: this is for simple requests."""
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
