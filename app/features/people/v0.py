"""/v0/keys: create, list, rotate and revoke API keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from app.base.keys import HIDDEN, access_key_id, digest_of, scopes_of, secret_access_key
from app.base.times import EPOCH, ms_of, ms_or_none
from app.features.people import rights
from app.http.bounds import about, text
from app.http.fields import cursor_of, cursor_to, page_size
from app.http.openapi import NAME, path
from app.http.route import Call
from app.http.signin import api_keys
from app.http.signin.api_keys import KeyState, NewKey, StoredKey
from app.http.v0.dialect import V0
from app.kernel.topics.settings import SEVEN_DAYS_MS, TEN_YEARS_MS, Tenant

ID: Final = path("id", "The key's id.", {"type": "string", "pattern": "^key_[0-9a-f]{16}$"})

ScopeWord = Literal["read", "write", "delete", "admin"]


class MakeKeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new key."""

    name: Annotated[
        str,
        text(
            "What the key is for, on one line.",
            most=api_keys.MOST_NAME_BYTES,
            least=1,
            pattern="^[^\\u0000-\\u001f\\u007f]*$",
        ),
    ]
    scopes: Annotated[list[ScopeWord], about("The key's scopes.", minItems=1)]
    prefixes: Annotated[
        list[Annotated[str, Meta(extra_json_schema=NAME)]],
        about(
            "Prefixes of the names of the topics that it covers. Empty: all topics.", maxItems=api_keys.MOST_PREFIXES
        ),
    ] = []
    expires_in_ms: Annotated[
        Annotated[int, Meta(ge=1, le=TEN_YEARS_MS)] | None, about("When it expires, from now. Absent: never.")
    ] = None
    tenant: Annotated[
        Tenant | None, about("Limits the key to this tenant's jobs. Its scopes can be read and write only.")
    ] = None
    payloads: Annotated[
        Literal["shown", "hidden"],
        about("hidden: the key can't see payloads or claim jobs."),
    ] = "shown"
    sqs: Annotated[bool, about("Whether to answer the key's credentials for SQS clients, too.")] = False


class RotateKeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long the previous secret keeps working."""

    grace_ms: Annotated[int, Meta(ge=0, le=SEVEN_DAYS_MS, description="In ms. 0 ends it at once.")] = 0
    sqs: Annotated[bool, about("Whether to answer the key's credentials for SQS clients, too.")] = False


class KeyShown(msgspec.Struct):
    """A key without its secret. Times are in ms since 1970. `old_secret_until`: when the previous secret stops working,
    null if none works any more."""

    id: str
    name: str
    scopes: list[str]
    prefixes: list[str]
    tenant: str | None
    payloads: Literal["shown", "hidden"]
    state: Literal["live", "expired", "revoked"]
    created_at: int
    created_by: str
    rotated_at: int | None
    expires_at: int | None
    revoked_at: int | None
    old_secret_until: int | None


class KeyAnswer(KeyShown, kw_only=True):
    """The key."""


class SqsCredentials(msgspec.Struct):
    """A key as AWS's SDKs take it. The secret changes when the key is rotated."""

    access_key_id: str
    secret_access_key: str


class SecretAnswer(KeyShown, kw_only=True):
    """The key and its secret, which is shown only once. `sqs`: its credentials for SQS clients, if they were asked
    for."""

    secret: str
    sqs: SqsCredentials | UnsetType = UNSET


class KeysAnswer(msgspec.Struct):
    """A page of keys, newest first. The last page has no `next_cursor`."""

    keys: list[KeyShown]
    next_cursor: str | UnsetType = UNSET


class _KeyPlace(msgspec.Struct, forbid_unknown_fields=True):
    at: Annotated[int, Meta(ge=0, le=10**17)]  # µs since 1970
    id: Annotated[str, Meta(pattern="^key_[0-9a-f]{16}$")]


async def make(call: Call, body: MakeKeyBody) -> Response:
    """Create a key, with no more rights than the caller's own key. Its secret is shown only in this answer."""
    limits = body.expires_in_ms, body.tenant, body.payloads == HIDDEN
    asked = NewKey(body.name, scopes_of(body.scopes), tuple(body.prefixes), *limits)
    key, secret = await rights.make_key(call.context, asked, rights.changer_of(call))
    return await _with_secret(call, key, secret, 201, sqs=body.sqs)


async def page(call: Call) -> KeysAnswer:
    """List the keys with no more rights than the caller's own, newest first. Expired and revoked keys are included."""
    size, place = page_size(call.request), cursor_of(call.request, _KeyPlace)
    before = api_keys.NEWEST if place is None else (EPOCH + timedelta(microseconds=place.at), place.id)
    keys = await api_keys.page(call.context.pools.rest, before, size + 1, rights.changer_of(call))
    more: str | UnsetType = UNSET
    if len(keys) > size:
        last = keys[size - 1]
        more = cursor_to({"at": (last.created_at - EPOCH) // timedelta(microseconds=1), "id": last.id})
    return KeysAnswer([KeyShown(**_fields(one)) for one in keys[:size]], more)


async def get(call: Call) -> KeyAnswer:
    """Show a key, without its secret."""
    key_id: str = call.request.path_params["id"]
    return KeyAnswer(**_fields(await api_keys.get(call.context.pools.rest, key_id, rights.changer_of(call))))


async def rotate(call: Call, body: RotateKeyBody) -> Response:
    """Give a key a new secret, shown only in this answer. The previous secret works for `grace_ms`."""
    key_id: str = call.request.path_params["id"]
    key, secret = await rights.rotate_key(call.context, key_id, body.grace_ms, rights.changer_of(call))
    return await _with_secret(call, key, secret, 200, sqs=body.sqs)


async def revoke(call: Call) -> KeyAnswer:
    """Revoke a key, which can't be undone. The key stays in the list. A second call changes nothing."""
    key_id: str = call.request.path_params["id"]
    return KeyAnswer(**_fields(await rights.revoke_key(call.context, key_id, rights.changer_of(call))))


async def _with_secret(call: Call, key: StoredKey, secret: str, status: int, *, sqs: bool) -> Response:
    answer = SecretAnswer(**_fields(key), secret=secret)
    if sqs:
        signer = await call.context.access.directory.signer()
        made = secret_access_key(signer.secret, key.id, digest_of(secret.encode()))
        answer.sqs = SqsCredentials(access_key_id(key.id), made)
    response = V0.write(answer, status, call.began)
    response.headers["cache-control"] = "no-store"
    return response


def _fields(key: StoredKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes.words,
        "prefixes": list(key.prefixes),
        "tenant": key.tenant,
        "payloads": "hidden" if key.hides_payloads else "shown",
        "state": key.state.value,
        "created_at": ms_of(key.created_at),
        "created_by": key.created_by,
        "rotated_at": ms_or_none(key.rotated_at),
        "expires_at": ms_or_none(key.expires_at),
        "revoked_at": ms_or_none(key.revoked_at),
        "old_secret_until": ms_or_none(key.old_until) if key.state is KeyState.LIVE else None,
    }
