"""Change a topic: its configuration, pause, resume and drain. For both dialects and the pages.

docs/jobs.md; docs/semantics.md, section 24.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from starlette.requests import Request

from app.base.db.pool import COMMAND_SECONDS
from app.errors import TopicExistsIncompatible
from app.http.context import Context, context_of
from app.http.fields import encode
from app.kernel.audit.trail import Action
from app.kernel.counts import inspector
from app.kernel.engine import Core, Engine
from app.kernel.schemas.schemas import Format, SchemaText, text_of
from app.kernel.topics import store, webhooks
from app.kernel.topics.cache import TTL_SECONDS
from app.kernel.topics.policy import AskedInFull, Control, Policy, check_name, resolve
from app.kernel.topics.settings import Chosen, Config
from app.kernel.topics.webhooks import Webhook


def check_hook(request: Request, topic: str, hook: Webhook | None) -> tuple[Webhook | None, str | None]:
    """Check a topic's webhook. Returns it with its secret masked, and the secret. Raises InvalidRequest."""
    webhooks.check_setting(topic, hook, signs=context_of(request).settings.webhook_secret is not None)
    return webhooks.conceal(hook)


def check_dead_letter(request: Request, dead_letter: str | None) -> None:
    """Check that the caller may use a dead-letter topic. Raises InvalidRequest, Unauthorized, Forbidden."""
    webhooks.check_dead_letter(dead_letter)
    if dead_letter is not None:
        context_of(request).access.may_name(request, dead_letter)


async def amend(
    request: Request, topic: str, change: Callable[[Chosen | None], Chosen | None], *, secret: str | None = None
) -> Chosen | None:
    """Change a stored configuration with `store.amend`, and announce it to all processes. The caller checks rights."""
    context = context_of(request)
    chosen = await store.amend(context.pools.rest, topic, change, context.access.actor(request), secret=secret)
    if chosen is not None:
        context.policies.announce(topic)
    return chosen


async def configure(
    request: Request, context: Context, name: str, asked: AskedInFull, *, replace: bool = True
) -> tuple[Config, SchemaText | None, bool]:
    """Store a configuration. Returns the full configuration, the schema, and whether the topic was created.

    Without `replace`, an existing topic is left as it is. Raises InvalidRequest, InvalidSchema, Forbidden if the key
    may not write to the dead-letter topic, TopicExistsIncompatible.
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
        hint = 'Send "type": "queue". The default type is "log".'
        raise TopicExistsIncompatible(f"{error.message} {hint}", error.detail) from None
    context.policies.announce(name)
    return config, schema, created


def _schema_asked(asked: AskedInFull) -> SchemaText:
    form = None if asked.schema_format is None else Format(asked.schema_format)
    return text_of(encode(asked.schema).decode(), form)


LOOK_SECONDS: Final = 0.5
# After this time every process knows of the drain, and the calls that it accepted before have ended.
CLOSE_SECONDS: Final = TTL_SECONDS + COMMAND_SECONDS


async def hold(request: Request, name: str, change: Callable[[Control], Control], action: Action) -> Control:
    """Pause, resume or drain a topic, with an entry in the audit trail. The caller checks rights.

    Raises InvalidRequest, TopicNotFound, NotAQueue, and the errors of `change`.
    """
    context = context_of(request)
    by = context.access.actor(request)
    control = await store.control(context.pools.rest, check_name(name), change, action, by)
    context.policies.announce(name)
    if action is Action.TOPIC_RESUMED:
        context.engine.wake_all_of((await context.policies.queue(name)).topic.id)
    return control


class Remainder(NamedTuple):
    """The rest of a drained queue.

    jobs: ready, scheduled, blocked or in flight. closes_in_ms: when all processes refuse new jobs, 0 if they do now.
    empty: it has no jobs, and can't get any.
    """

    jobs: int
    closes_in_ms: int
    empty: bool


class Drains(Core):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.close_seconds = CLOSE_SECONDS

    async def wait(self, name: str, seconds: float) -> Remainder:
        """Wait until a drained queue is empty, for `seconds` at most. Raises TopicNotFound."""
        until = time.monotonic() + seconds
        left = await self._look(await self._engine.policies.queue(name))
        while not left.empty and time.monotonic() + LOOK_SECONDS <= until:
            await asyncio.sleep(LOOK_SECONDS)
            left = await self._look(await self._engine.policies.queue(name))
        return left

    async def _look(self, policy: Policy) -> Remainder:
        db = self._engine.pools.rest
        closing = await store.closing(db, policy.topic.name, self.close_seconds)
        # SQL users with uncommitted jobs. Read before the count: the count may include their jobs by then.
        writing = await inspector.drawers(db, policy.topic)
        counts = await self._engine.counters.read(policy)
        jobs = counts.ready + counts.scheduled + counts.blocked + counts.in_flight
        if closing is None:  # it was resumed
            return Remainder(jobs, 0, empty=False)
        jobs += closing.unchecked
        return Remainder(jobs, closing.in_ms, empty=not (jobs or closing.in_ms or writing))
