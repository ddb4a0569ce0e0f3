"""GET, PUT and DELETE /api/topic-schemas/:topic, and the list of them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest, NotFound
from app.http import direct
from app.http.body import read_json
from app.http.bounds import about
from app.http.context import context_of
from app.http.fields import encode, topic_in
from app.http.messages.errors import operation
from app.http.openapi import TOPIC, query
from app.http.paging import CURSOR, cursor_of, cursor_to, foreign_cursor, page_size
from app.kernel.schemas import schemas
from app.kernel.schemas import store as schema_store
from app.kernel.schemas.store import Kept
from app.kernel.topics.config import check_name, of_messages

router = direct.router("messages")

MOST_SHOWN: Final = 100
PAGE_SIZE: Final = query("page_size", "1 to 100, clamped.", {"type": "integer", "default": MOST_SHOWN})


class SchemaBody(msgspec.Struct, forbid_unknown_fields=True):
    """A schema for a topic's payloads."""

    schema_json: Annotated[
        str | dict[str, Any] | list[Any],
        about("A JSON Schema or an Avro schema: its text, or the schema itself; up to 256 KiB."),
    ]
    format: Annotated[Literal["json_schema", "avro"] | None, about("What it is. Absent: as its shape says.")] = None


class TopicSchema(msgspec.Struct):
    """A topic's schema. `version` counts its changes."""

    topic: str
    schema_json: str
    format: Literal["json_schema", "avro"]
    version: int
    updated_at: datetime


class TopicSchemas(msgspec.Struct):
    """A page of schemas by topic; `next_cursor` is absent on the last one."""

    items: list[TopicSchema]
    next_cursor: str | UnsetType = UNSET


_body = msgspec.json.Decoder(SchemaBody)


@router.get(
    "/api/topic-schemas",
    response_class=Response,
    openapi_extra=operation(parameters=[PAGE_SIZE, CURSOR], answers={200: TopicSchemas}, errors=[400, 401, 403, 503]),
)
async def page(request: Request) -> Response:
    """The schemas of topics, by topic, a page at a time."""
    context = context_of(request)
    allowed = context.access.prefixes(request, Scope.ADMIN)
    size = page_size(request, MOST_SHOWN)
    found = await schema_store.page(context.pools.rest, _after(request), size + 1, allowed)
    shown = [_shown(kept) for kept in found[:size]]
    more = cursor_to({"after": shown[-1].topic}) if len(found) > size else UNSET
    return _answer(TopicSchemas(shown, more))


@router.get(
    "/api/topic-schemas/{topic}",
    response_class=Response,
    openapi_extra=operation(parameters=[TOPIC], answers={200: TopicSchema}, errors=[400, 401, 403, 404, 503]),
)
async def get(request: Request) -> Response:
    """The schema of a topic."""
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.ADMIN, name)
    # Not from the cache: what is shown here is what is stored.
    kept = await schema_store.get(context.pools.rest, check_name(name))
    if kept is None:
        raise NotFound(f"Topic {name!r} has no schema.", {"topic": name})
    return _answer(_shown(kept))


@router.put(
    "/api/topic-schemas/{topic}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=SchemaBody,
        answers={200: TopicSchema},
        errors=[400, 401, 403, 413, 415, 503],
    ),
)
async def put(request: Request) -> Response:
    """Give a topic a schema, which payloads fit from the next call on. What is there already is not looked at. A topic
    that is absent is made."""
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.ADMIN, name)
    body = await read_json(request, _body, context.settings.max_body_bytes)
    of_messages(name)
    given = body.schema_json
    form = None if body.format is None else schemas.Format(body.format)
    text = await asyncio.to_thread(schemas.text_of, given if isinstance(given, str) else encode(given).decode(), form)
    kept = await schema_store.put(context.pools.rest, name, text, context.access.actor(request))
    context.policies.changed(name)
    return _answer(_shown(kept))


@router.delete(
    "/api/topic-schemas/{topic}",
    status_code=204,
    response_class=Response,
    openapi_extra=operation(parameters=[TOPIC], answers={204: None}, errors=[400, 401, 403, 503]),
)
async def delete(request: Request) -> Response:
    """Take a topic's schema back, if it has one."""
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.ADMIN, name)
    check_name(name)
    if await schema_store.drop(context.pools.rest, name, context.access.actor(request)):
        context.policies.changed(name)
    return Response(status_code=204)


def _shown(kept: Kept) -> TopicSchema:
    return TopicSchema(kept.topic, kept.schema, schemas.Format(kept.format).value, kept.version, kept.updated_at)


def _after(request: Request) -> str:
    place = cursor_of(request, dict[str, str])
    try:
        return "" if place is None else check_name(place["after"])
    except (KeyError, InvalidRequest):
        raise foreign_cursor() from None


def _answer(shown: msgspec.Struct) -> Response:
    return Response(encode(shown), media_type="application/json")
