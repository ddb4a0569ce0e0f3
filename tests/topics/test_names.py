"""Topics' names by their ids: asked for once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.kernel.topics.cache import Names
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine

MakeQueue = Callable[..., Awaitable[Policy]]


async def test_names_are_asked_for_together_and_once(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    topic_id = (await make_queue(topic)).topic.id
    unknown = range(2**31 - 1_000, 2**31)
    names = Names(machine.pools.rest)
    assert await names.of_all([topic_id, *unknown]) == {topic_id: topic}
    assert machine.log.count("names_of") == 1
    assert await names.of(topic_id) == topic
    assert machine.log.count("names_of") == 1
    assert await names.of(unknown[0]) is None
