"""Requeues, cancellations and purges of many jobs, for whichever edge an operator comes by. docs/dead-letters.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from starlette.requests import Request

from app.base.keys import Key
from app.errors import NotAQueue, NotFound, TopicNotFound
from app.features.jobs.operations import Operation
from app.features.jobs.redrives import Redrives
from app.http.access import must_cover
from app.http.context import Context, context_of
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.jobs import Status
from app.kernel.purges import Purges
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import OnExhausted

MAX_RATE: Final = 100_000  # jobs a second


def must_cover_letters(key: Key | None, policy: Policy) -> None:
    """Refuse a key that is for the topic and not for its dead letters, which are looked at too. Raises Forbidden."""
    if policy.config.dead_letter is not None:
        must_cover(key, policy.config.dead_letter)


async def queue_of_letters(context: Context, policy: Policy) -> tuple[str, int] | None:
    """The queue that the topic's dead letters go to, if there is one."""
    config = policy.config
    if config.on_exhausted is not OnExhausted.DEAD_LETTER or config.dead_letter is None:
        return None
    try:
        dead = await context.policies.queue(config.dead_letter)
    except (TopicNotFound, NotAQueue):
        return None
    return dead.topic.name, dead.topic.id


async def find_operation(context: Context, given: str, key: Key | None) -> Operation:
    """An operation by its id. Raises NotFound, also where the key is not for its topic."""
    try:
        found = await context.core(Redrives).read(UUID(given))
    except ValueError:
        found = None
    if found is None or (key is not None and not key.covers(found.wanted.topic[0])):
        raise NotFound(f"There is no operation {given[:80]!r}.")
    return found


async def purge(request: Request, policy: Policy, statuses: Sequence[Status]) -> int:
    """Delete a topic's jobs by their status, with an entry in the audit trail ahead of it: how many."""
    context = context_of(request)
    actor, detail = context.access.actor(request), {"statuses": [one.value for one in statuses]}
    await trail.record(context.pools.rest, actor, Action.TOPIC_PURGED, policy.topic.name, detail)
    return await context.core(Purges).purge(policy, statuses)
