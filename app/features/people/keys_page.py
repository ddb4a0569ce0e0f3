"""/admin/keys: create, list, rotate and revoke API keys. A secret is shown once, in the answer to the form."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.keys import Scope, scopes_of
from app.base.times import ms_of, ms_or_none
from app.errors import InvalidRequest
from app.features.people import rights
from app.http.context import context_of
from app.http.signin import api_keys
from app.http.signin.api_keys import KeyState, NewKey, StoredKey
from app.pages.forms import FAULTS, TypedForm, form_with_fault
from app.pages.permissions import CHANGE_KEYS, allows
from app.pages.render import page
from app.pages.session import fields_of

MOST: Final = 50
MOST_DAYS: Final = 3650
DAY_MS: Final = 86_400_000
GRACES: Final = {"0": "at once", "3600000": "in an hour", "86400000": "in a day", "604800000": "in a week"}
WORDS: Final = Scope.ALL.words


class KeyRow(msgspec.Struct, frozen=True):
    """A key on a page. Times are in ms since 1970."""

    id: str
    name: str
    state: str
    scopes: list[str]
    prefixes: tuple[str, ...]
    tenant: str | None
    hides_payloads: bool
    created_ms: int
    created_by: str
    rotated_ms: int | None
    expires_ms: int | None
    revoked_ms: int | None
    old_until_ms: int | None


async def show(request: Request) -> Response:
    """List the keys within the visitor's own rights, newest first. Raises NotFound, Forbidden."""
    context, by = context_of(request), await rights.changer(request)
    before, place = request.query_params.get("before", ""), api_keys.NEWEST
    if before:
        last = await api_keys.get(context.pools.rest, before, by)
        place = (last.created_at, last.id)
    found = await api_keys.page(context.pools.rest, place, MOST + 1, by)
    return page(
        request,
        "keys.html",
        title="Keys",
        rows=[_row(key) for key in found[:MOST]],
        may_change=allows(request, CHANGE_KEYS),
        first="/admin/keys" if before else "",
        following=f"/admin/keys?before={found[MOST - 1].id}" if len(found) > MOST else "",
    )


async def one(request: Request) -> Response:
    """Show a key. Raises NotFound, Forbidden."""
    key = await api_keys.get(context_of(request).pools.rest, request.path_params["id"], await rights.changer(request))
    return page(
        request,
        "key.html",
        title=key.name,
        key=_row(key),
        graces=GRACES,
        may_change=allows(request, CHANGE_KEYS) and key.state is KeyState.LIVE,
    )


async def ask(request: Request) -> Response:
    return _form(request, TypedForm())


async def make(request: Request) -> Response:
    """Create a key and show its secret, or show the form again. Raises Unauthorized."""
    context, by, fields = context_of(request), await rights.changer(request), await fields_of(request)
    try:
        key, secret = await rights.make_key(context, _key_in(fields), by)
    except FAULTS as error:
        return _form(request, form_with_fault(fields, error), error.status)
    return _with_secret(request, key, secret, "Created")


async def rotate(request: Request) -> Response:
    """Rotate a key and show its new secret. Raises NotFound, KeyNotLive, InvalidRequest."""
    context, by, fields = context_of(request), await rights.changer(request), await fields_of(request)
    grace = fields.get("grace", "0")
    if grace not in GRACES:
        raise InvalidRequest(f"grace must be one of {', '.join(GRACES)}.")
    key, secret = await rights.rotate_key(context, request.path_params["id"], int(grace), by)
    return _with_secret(request, key, secret, "Rotated")


async def revoke(request: Request) -> Response:
    """Revoke a key, which can't be undone. Raises NotFound."""
    by = await rights.changer(request)
    key = await rights.revoke_key(context_of(request), request.path_params["id"], by)
    return RedirectResponse(f"/admin/keys/{key.id}", 303)


def _form(request: Request, form: TypedForm, status: int = 200) -> Response:
    return page(request, "key_new.html", status, title="New key", form=form, scopes=WORDS, most_days=MOST_DAYS)


def _key_in(fields: dict[str, str]) -> NewKey:
    days = fields.get("days", "").strip()
    if days and not (days.isascii() and days.isdecimal() and len(days) <= 4 and 1 <= int(days) <= MOST_DAYS):
        raise InvalidRequest(f"Must be 1 to {MOST_DAYS} days, or empty for never.", {"field": "days"})
    return NewKey(
        fields.get("name", "").strip(),
        scopes_of(word for word in WORDS if f"scope_{word}" in fields),
        tuple(fields.get("prefixes", "").split()),
        int(days) * DAY_MS if days else None,
        fields.get("tenant") or None,
        "hides_payloads" in fields,
    )


def _with_secret(request: Request, key: StoredKey, secret: str, done: str) -> Response:
    return page(request, "secret.html", title=f"{done} {key.name}", done=done, key=_row(key), secret=secret)


def _row(key: StoredKey) -> KeyRow:
    return KeyRow(
        id=key.id,
        name=key.name,
        state=key.state.value,
        scopes=key.scopes.words,
        prefixes=key.prefixes,
        tenant=key.tenant,
        hides_payloads=key.hides_payloads,
        created_ms=ms_of(key.created_at),
        created_by=key.created_by,
        rotated_ms=ms_or_none(key.rotated_at),
        expires_ms=ms_or_none(key.expires_at),
        revoked_ms=ms_or_none(key.revoked_at),
        old_until_ms=ms_or_none(key.old_until) if key.state is KeyState.LIVE else None,
    )
