"""Resolves ids of messages to jobs, for a key that may see them. app/kernel/model.py defines their format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from app.errors import NotAQueue, NotFound, TopicNotFound
from app.http import sight
from app.http.openapi import path
from app.kernel.jobs import find_letters
from app.kernel.model import LOW_BITS, Seq, id_of
from app.kernel.topics.settings import BIGINT_MAX

if TYPE_CHECKING:
    from app.base.keys import Key
    from app.http.context import Context
    from app.kernel.topics.policy import Policy

_SHAPE: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_MOST: Final = 1 << 31
ID: Final = {**path("id", "The message's id.", {"type": "string"}), "example": "00000001-0000-8000-8000-000000000001"}

Place = tuple["Policy", Seq]


def job_of(message_id: str) -> tuple[int, Seq]:
    """Parse a message's id. Returns the topic's id and the seq. Raises NotFound for a malformed id."""
    text = message_id.lower()
    if _SHAPE.match(text) is not None:
        number = int(text.replace("-", ""), 16)
        topic_id, seq = number >> 96, (number >> 64 & 0xFFF) << 62 | number & LOW_BITS
        if 0 < topic_id < _MOST and 0 < seq <= BIGINT_MAX and id_of(topic_id, seq) == text:
            return topic_id, Seq(seq)
    raise no_message(message_id)


def no_message(message_id: str) -> NotFound:
    """The error for a message that does not exist, or that the caller does not hold."""
    return NotFound(f"There is no message {message_id[:80]!r}.")


async def first_place(context: Context, key: Key | None, job: tuple[int, Seq]) -> Place | None:
    """The job's original topic and seq, which still hold unless it is a dead letter; None if the key can't see the
    topic."""
    topic_id, seq = job
    name = await context.names.of(topic_id)
    policy = None if name is None else await _policy(context, key, name, topic_id, seq)
    return None if policy is None else (policy, seq)


async def later_places(context: Context, key: Key | None, jobs: Sequence[tuple[int, Seq]]) -> dict[int, Place]:
    """The current places of jobs that are dead letters, by index in `jobs`."""
    found = await find_letters(context.pools.rest, jobs)
    places = {}
    for i, place in found.items():
        policy = await _policy(context, key, place.topic, place.topic_id, place.seq)
        if policy is not None:
            places[i] = (policy, place.seq)
    return places


async def _policy(context: Context, key: Key | None, name: str, topic_id: int, seq: Seq) -> Policy | None:
    """The topic with this id; None if it was deleted or recreated, or if the key can't see the topic or the job's
    tenant."""
    if key is not None and not key.covers(name):
        return None
    try:
        policy = await context.policies.queue(name)
        if policy.topic.id != topic_id:
            context.policies.forget(name)  # one of the two is out of date
            policy = await context.policies.queue(name)
    except (TopicNotFound, NotAQueue):
        return None
    if policy.topic.id != topic_id or await sight.own_places(context, key, policy.topic, [seq]) == []:
        return None
    return policy
