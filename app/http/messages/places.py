"""Where the job is that a message's id names, for a key that may know of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.errors import NotAQueue, TopicNotFound
from app.http import tenancy
from app.kernel import jobs as shown
from app.kernel.model import Seq

if TYPE_CHECKING:
    from app.base.keys import Key
    from app.http.context import Context
    from app.kernel.topics.policy import Policy

Place = tuple["Policy", Seq]


async def first_place(context: Context, key: Key | None, job: tuple[int, Seq]) -> Place | None:
    """Where it was at first, and is unless it is a dead letter; None where there is no such topic for this key."""
    topic_id, seq = job
    name = await context.names.of(topic_id)
    policy = None if name is None else await _policy(context, key, name, topic_id, seq)
    return None if policy is None else (policy, seq)


async def later_places(context: Context, key: Key | None, jobs: Sequence[tuple[int, Seq]]) -> dict[int, Place]:
    """Where those are that are dead letters now, by place in `jobs`."""
    found = await shown.letters(context.pools.rest, jobs)
    places = {}
    for i, place in found.items():
        policy = await _policy(context, key, place.topic, place.topic_id, place.seq)
        if policy is not None:
            places[i] = (policy, place.seq)
    return places


async def _policy(context: Context, key: Key | None, name: str, topic_id: int, seq: Seq) -> Policy | None:
    """The topic of this id; None for one that was deleted, and perhaps made anew, or that the key is not for; and for a
    job of a tenant that it is not for."""
    if key is not None and not key.covers(name):
        return None
    try:
        policy = await context.policies.queue(name)
        if policy.topic.id != topic_id:
            context.policies.forget(name)  # one of the two is out of date
            policy = await context.policies.queue(name)
    except (TopicNotFound, NotAQueue):
        return None
    if policy.topic.id != topic_id or await tenancy.own(context, key, policy.topic, [seq]) == []:
        return None
    return policy
