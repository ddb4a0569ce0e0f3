"""Topics' names by their ids, which stand in the ids of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.db import sql

if TYPE_CHECKING:
    from app.db.pool import Pool
    from app.queue.model import Topic

_NAME_OF = sql.load(__package__, "name_of")

MOST: Final = 10_000


class Names:
    """What a process knows of them. An id never gets another name, so nothing that was found is ever wrong; the topic
    may have been deleted, as its policy tells. What was not found is not kept."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: dict[int, str] = {}

    async def of(self, topic_id: int) -> str | None:
        """The topic's name; None where there is no such topic."""
        name = self._known.get(topic_id)
        if name is None:
            name = await self._pool.fetchval(_NAME_OF, topic_id)
            if name is not None:
                self._keep(topic_id, name)
        return name

    def learn(self, topic: Topic) -> None:
        """Somebody is about to ask for this one."""
        if topic.id not in self._known:
            self._keep(topic.id, topic.name)

    def _keep(self, topic_id: int, name: str) -> None:
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[topic_id] = name
