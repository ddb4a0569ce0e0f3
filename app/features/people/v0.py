"""/v0/keys: API keys made, listed, rotated and revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from app.base.keys import HIDDEN, scopes_of
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
    """A key to be made."""

    name: Annotated[
        str,
        text(
            "What it is for, on one line.",
            most=api_keys.MOST_NAME_BYTES,
            least=1,
            pattern="^[^\\u0000-\\u001f\\u007f]*$",
        ),
    ]
    scopes: Annotated[list[ScopeWord], about("What it may do.", minItems=1)]
    prefixes: Annotated[
        list[Annotated[str, Meta(extra_json_schema=NAME)]],
        about(
            "Starts of the names of the topics that it is for; none is every topic.", maxItems=api_keys.MOST_PREFIXES
        ),
    ] = []
    expires_in_ms: Annotated[
        Annotated[int, Meta(ge=1, le=TEN_YEARS_MS)] | None, about("How long it is good; without it, for ever.")
    ] = None
    tenant: Annotated[
        Tenant | None, about("Whose jobs it is for, and no others; then its scopes are read and write at most.")
    ] = None
    payloads: Annotated[
        Literal["shown", "hidden"],
        about("hidden: it sees jobs and not what is in them, and takes none."),
    ] = "shown"


class RotateKeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """For how long the secret before stays good."""

    grace_ms: Annotated[int, Meta(ge=0, le=SEVEN_DAYS_MS, description="For how long, in ms; 0 ends it at once.")] = 0


class KeyShown(msgspec.Struct):
    """A key without its secret. Times are in ms since 1970. old_secret_until: how long the secret before the last
    rotation is good, null if it is not."""

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
    """The key as it is now."""


class SecretAnswer(KeyShown, kw_only=True):
    """The key as it is now, and its secret, which is shown this once."""

    secret: str


class KeysAnswer(msgspec.Struct):
    """A page of keys, the newest first; `next_cursor` is absent on the last one."""

    keys: list[KeyShown]
    next_cursor: str | UnsetType = UNSET


class _KeyPlace(msgspec.Struct, forbid_unknown_fields=True):
    at: Annotated[int, Meta(ge=0, le=10**17)]  # µs since 1970
    id: Annotated[str, Meta(pattern="^key_[0-9a-f]{16}$")]


async def make(call: Call, body: MakeKeyBody) -> Response:
    """Make a key, within what the caller's own key may do. Its secret is in this answer and nowhere else."""
    limits = body.expires_in_ms, body.tenant, body.payloads == HIDDEN
    asked = NewKey(body.name, scopes_of(body.scopes), tuple(body.prefixes), *limits)
    return _with_secret(call, *await rights.make_key(call.context, asked, rights.changer_of(call)), 201)


async def page(call: Call) -> KeysAnswer:
    """The keys within what the caller's own key may do, the newest first, those that have ended included."""
    size, place = page_size(call.request), cursor_of(call.request, _KeyPlace)
    before = api_keys.NEWEST if place is None else (EPOCH + timedelta(microseconds=place.at), place.id)
    keys = await api_keys.page(call.context.pools.rest, before, size + 1, rights.changer_of(call))
    more: str | UnsetType = UNSET
    if len(keys) > size:
        last = keys[size - 1]
        more = cursor_to({"at": (last.created_at - EPOCH) // timedelta(microseconds=1), "id": last.id})
    return KeysAnswer([KeyShown(**_fields(one)) for one in keys[:size]], more)


async def get(call: Call) -> KeyAnswer:
    """A key, without its secret."""
    key_id: str = call.request.path_params["id"]
    return KeyAnswer(**_fields(await api_keys.get(call.context.pools.rest, key_id, rights.changer_of(call))))


async def rotate(call: Call, body: RotateKeyBody) -> Response:
    """Give a key another secret, shown in this answer only; the one before stays good for `grace_ms`."""
    key_id: str = call.request.path_params["id"]
    return _with_secret(
        call, *await rights.rotate_key(call.context, key_id, body.grace_ms, rights.changer_of(call)), 200
    )


async def revoke(call: Call) -> KeyAnswer:
    """Revoke a key for good. It stays in the list; doing it again changes nothing."""
    key_id: str = call.request.path_params["id"]
    return KeyAnswer(**_fields(await rights.revoke_key(call.context, key_id, rights.changer_of(call))))


def _with_secret(call: Call, kept: StoredKey, secret: str, status: int) -> Response:
    response = V0.write(SecretAnswer(**_fields(kept), secret=secret), status, call.began)
    response.headers["cache-control"] = "no-store"
    return response


def _fields(kept: StoredKey) -> dict[str, Any]:
    return {
        "id": kept.id,
        "name": kept.name,
        "scopes": kept.scopes.words,
        "prefixes": list(kept.prefixes),
        "tenant": kept.tenant,
        "payloads": "hidden" if kept.hides_payloads else "shown",
        "state": kept.state.value,
        "created_at": ms_of(kept.created_at),
        "created_by": kept.created_by,
        "rotated_at": ms_or_none(kept.rotated_at),
        "expires_at": ms_or_none(kept.expires_at),
        "revoked_at": ms_or_none(kept.revoked_at),
        "old_secret_until": ms_or_none(kept.old_until) if kept.state is KeyState.LIVE else None,
    }
