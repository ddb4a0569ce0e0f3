"""Changing what is chosen for a topic, for whichever edge it comes by. docs/semantics.md, section 24."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from starlette.requests import Request

from app.errors import TopicExistsIncompatible
from app.http.context import Context, context_of
from app.http.fields import encode
from app.kernel.schemas.schemas import Format, Text, text_of
from app.kernel.topics import store, webhooks
from app.kernel.topics.policy import AskedInFull, resolve
from app.kernel.topics.settings import Chosen, Config
from app.kernel.topics.webhooks import Webhook


def check_hook(request: Request, topic: str, hook: Webhook | None) -> tuple[Webhook | None, str | None]:
    """A webhook that the topic can have, with a mask in the place of its secret, and the secret; see webhooks.conceal.

    Raises InvalidRequest.
    """
    webhooks.check_setting(topic, hook, signs=context_of(request).settings.webhook_secret is not None)
    return webhooks.conceal(hook)


def check_dead_letter(request: Request, dead_letter: str | None) -> None:
    """Whether dead letters may be sent there by who asks. Raises InvalidRequest, Unauthorized, Forbidden."""
    webhooks.check_dead_letter(dead_letter)
    if dead_letter is not None:
        context_of(request).access.may_name(request, dead_letter)


async def amend(
    request: Request, topic: str, change: Callable[[Chosen | None], Chosen | None], *, secret: str | None = None
) -> Chosen | None:
    """As store.amend, by who asks, and known to every process. Who asks was let do that."""
    context = context_of(request)
    chosen = await store.amend(context.pools.rest, topic, change, context.access.actor(request), secret=secret)
    if chosen is not None:
        context.policies.changed(topic)
    return chosen


async def configure(
    request: Request, context: Context, name: str, asked: AskedInFull, *, replace: bool = True
) -> tuple[Config, Text | None, bool]:
    """Store what was asked for; the configuration in full, the schema, and whether the topic was created. Without
    `replace`, one that exists stays as it is.

    Raises InvalidRequest, InvalidSchema; Forbidden for a dead-letter topic that the key may not write to;
    TopicExistsIncompatible.
    """
    webhook, secret = check_hook(request, name, asked.webhook)
    config = resolve(name, msgspec.structs.replace(asked, webhook=webhook))
    check_dead_letter(request, config.dead_letter)
    schema = None if asked.schema is None else await asyncio.to_thread(_schema_asked, asked)
    store_it = store.put if replace else store.create
    try:
        created = await store_it(
            context.pools.rest, name, config, context.access.actor(request), schema=schema, secret=secret
        )
    except TopicExistsIncompatible as error:
        if asked.type is not None:
            raise
        hint = 'Send "type": "queue": without a type, a PUT is for a log.'
        raise TopicExistsIncompatible(f"{error.message} {hint}", error.detail) from None
    context.policies.changed(name)
    return config, schema, created


def _schema_asked(asked: AskedInFull) -> Text:
    form = None if asked.schema_format is None else Format(asked.schema_format)
    return text_of(encode(asked.schema).decode(), form)
