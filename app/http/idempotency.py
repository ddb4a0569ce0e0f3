"""The idempotency key of a call, in both dialects: a header, or a field of the body. docs/dedupe.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.errors import InvalidRequest
from app.http import tenancy
from app.http.bounds import MAX_KEY_BYTES
from app.http.openapi import header

if TYPE_CHECKING:
    from starlette.requests import Request

    from app.base.keys import Key

HEADER: Final = header(
    "Idempotency-Key",
    f"As idempotency_key in the body, which goes first. 1 to {MAX_KEY_BYTES} bytes.",
    {"type": "string", "minLength": 1, "maxLength": MAX_KEY_BYTES},
)


def key_of(request: Request, by: Key | None, given: str | None) -> str | None:
    """The call's key, one tenant's apart from another's; what is `given` in the body goes before the header. Raises
    InvalidRequest."""
    sent = request.headers.get("idempotency-key")
    for key in (given, sent):
        if key is not None and (not 0 < len(key.encode()) <= MAX_KEY_BYTES or "\0" in key):
            raise InvalidRequest(f"An idempotency key has 1 to {MAX_KEY_BYTES} bytes, and no NUL character (U+0000).")
    return tenancy.batch_key(by, sent if given is None else given)
