"""/api/topic-schemas: list, show, set and delete the schemas of topics."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from app.errors import NotFound
from app.http.bounds import about
from app.http.fields import cursor_to, encode, name_after, page_size
from app.http.openapi import query
from app.http.route import Call
from app.kernel.schemas import schemas
from app.kernel.schemas import store as schema_store
from app.kernel.schemas.store import StoredSchema
from app.kernel.topics.policy import check_name, of_messages

MOST_SHOWN: Final = 100
PAGE_SIZE: Final = query("page_size", "1 to 100, clamped.", {"type": "integer", "default": MOST_SHOWN})


class SchemaBody(msgspec.Struct, forbid_unknown_fields=True):
    """A schema for a topic's payloads."""

    schema_json: Annotated[
        str | dict[str, Any] | list[Any],
        about("A JSON Schema or an Avro schema, as text or as JSON, of up to 256 KiB."),
    ]
    format: Annotated[Literal["json_schema", "avro"] | None, about("The kind of schema. Absent: detected.")] = None


class TopicSchema(msgspec.Struct):
    """A topic's schema. `version` counts its changes."""

    topic: str
    schema_json: str
    format: Literal["json_schema", "avro"]
    version: int
    updated_at: datetime


class TopicSchemas(msgspec.Struct):
    """A page of schemas by topic. The last page has no `next_cursor`."""

    items: list[TopicSchema]
    next_cursor: str | UnsetType = UNSET


async def page(call: Call) -> TopicSchemas:
    """List the schemas of topics, by topic."""
    size = page_size(call.request, MOST_SHOWN)
    found = await schema_store.page(call.context.pools.rest, name_after(call.request), size + 1, call.prefixes)
    items = [_body_of(schema) for schema in found[:size]]
    return TopicSchemas(items, cursor_to({"after": items[-1].topic}) if len(found) > size else UNSET)


async def get(call: Call) -> TopicSchema:
    """Show the schema of a topic."""
    # Not from the cache: this shows what is stored.
    schema = await schema_store.get(call.context.pools.rest, check_name(call.topic))
    if schema is None:
        raise NotFound(f"Topic {call.topic!r} has no schema.", {"topic": call.topic})
    return _body_of(schema)


async def put(call: Call, body: SchemaBody) -> TopicSchema:
    """Set a topic's schema. Payloads are checked from the next call on. Existing jobs and records are not checked. A
    topic that does not exist is created."""
    of_messages(call.topic)
    given = body.schema_json
    form = None if body.format is None else schemas.Format(body.format)
    text = await asyncio.to_thread(schemas.text_of, given if isinstance(given, str) else encode(given).decode(), form)
    context = call.context
    schema = await schema_store.put(context.pools.rest, call.topic, text, context.access.actor(call.request))
    context.policies.announce(call.topic)
    return _body_of(schema)


async def delete(call: Call) -> None:
    """Delete a topic's schema, if it has one."""
    context = call.context
    if await schema_store.drop(context.pools.rest, check_name(call.topic), context.access.actor(call.request)):
        context.policies.announce(call.topic)


def _body_of(schema: StoredSchema) -> TopicSchema:
    return TopicSchema(
        schema.topic, schema.schema, schemas.Format(schema.format).value, schema.version, schema.updated_at
    )
