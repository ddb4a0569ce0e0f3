"""/v0/keys: API keys made, listed, rotated and revoked."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import HIDDEN, scopes_of
from app.base.times import EPOCH
from app.features.people import rights
from app.http import direct
from app.http.body import read_json
from app.http.context import context_of
from app.http.fields import encode, known_parameters
from app.http.openapi import operation, path
from app.http.paging import CURSOR, PAGE_SIZE, cursor_of, cursor_to, page_size
from app.http.signin import store
from app.http.signin.store import Asked, Kept
from app.http.v0.admin_bodies import KeyAnswer, KeysAnswer, MakeKeyBody, RotateKeyBody, SecretAnswer, shown
from app.http.v0.fields import answer

router = direct.router("keys")

ID = path("id", "The key's id.", {"type": "string", "pattern": "^key_[0-9a-f]{16}$"})

_make_body = msgspec.json.Decoder(MakeKeyBody)
_rotate_body = msgspec.json.Decoder(RotateKeyBody)


class _Place(msgspec.Struct, forbid_unknown_fields=True):
    at: Annotated[int, Meta(ge=0, le=10**17)]  # µs since 1970
    id: Annotated[str, Meta(pattern="^key_[0-9a-f]{16}$")]


@router.post(
    "/v0/keys",
    status_code=201,
    response_class=Response,
    openapi_extra=operation(body=MakeKeyBody, answers={201: SecretAnswer}, errors=[400, 401, 403, 413, 415, 429, 503]),
)
async def make(request: Request) -> Response:
    """Make a key, within what the caller's own key may do. Its secret is in this answer and nowhere else."""
    began = time.perf_counter()
    context = context_of(request)
    by = await rights.changer(request)
    body = await read_json(request, _make_body, context.settings.max_body_bytes)
    limits = body.expires_in_ms, body.tenant, body.payloads == HIDDEN
    asked = Asked(body.name, scopes_of(body.scopes), tuple(body.prefixes), *limits)
    kept, secret = await rights.make_key(context, asked, by)
    return _with_secret(kept, secret, began, 201)


@router.get(
    "/v0/keys",
    response_class=Response,
    openapi_extra=operation(parameters=[PAGE_SIZE, CURSOR], answers={200: KeysAnswer}, errors=[400, 401, 403, 503]),
)
async def page(request: Request) -> Response:
    """The keys within what the caller's own key may do, the newest first, those that have ended included."""
    began = time.perf_counter()
    context = context_of(request)
    by = await rights.changer(request)
    known_parameters(request, {"page_size", "cursor"})
    size = page_size(request)
    place = cursor_of(request, _Place)
    before = store.NEWEST if place is None else (EPOCH + timedelta(microseconds=place.at), place.id)
    found = await store.page(context.pools.rest, before, size + 1, by)
    fields: dict[str, object] = {"keys": [shown(kept) for kept in found[:size]]}
    if len(found) > size:
        last = found[size - 1]
        fields["next_cursor"] = cursor_to({"at": (last.created_at - EPOCH) // timedelta(microseconds=1), "id": last.id})
    return answer(encode(fields)[1:-1], began)


@router.get(
    "/v0/keys/{id}",
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={200: KeyAnswer}, errors=[401, 403, 404, 503]),
)
async def get(request: Request) -> Response:
    """A key, without its secret."""
    began = time.perf_counter()
    context = context_of(request)
    by = await rights.changer(request)
    kept = await store.get(context.pools.rest, request.path_params["id"], by)
    return answer(encode(shown(kept))[1:-1], began)


@router.post(
    "/v0/keys/{id}/rotate",
    response_class=Response,
    openapi_extra=operation(
        parameters=[ID],
        body=RotateKeyBody,
        body_required=False,
        answers={200: SecretAnswer},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def rotate(request: Request) -> Response:
    """Give a key another secret, shown in this answer only; the one before stays good for `grace_ms`."""
    began = time.perf_counter()
    context = context_of(request)
    by = await rights.changer(request)
    body = await read_json(request, _rotate_body, context.settings.max_body_bytes, empty=b"{}")
    kept, secret = await rights.rotate_key(context, request.path_params["id"], body.grace_ms, by)
    return _with_secret(kept, secret, began, 200)


@router.delete(
    "/v0/keys/{id}",
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={200: KeyAnswer}, errors=[401, 403, 404, 503]),
)
async def revoke(request: Request) -> Response:
    """Revoke a key for good. It stays in the list; doing it again changes nothing."""
    began = time.perf_counter()
    context = context_of(request)
    by = await rights.changer(request)
    kept = await rights.revoke_key(context, request.path_params["id"], by)
    return answer(encode(shown(kept))[1:-1], began)


def _with_secret(kept: Kept, secret: str, began: float, status: int) -> Response:
    response = answer(encode(shown(kept))[1:-1] + b',"secret":%b' % encode(secret), began, status=status)
    response.headers["cache-control"] = "no-store"
    return response
