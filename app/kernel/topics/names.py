"""Topics' names by their ids, which stand in the ids of messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from app.base.db import sql

if TYPE_CHECKING:
    from app.base.db.pool import Pool
    from app.kernel.model import Topic

_SQL: Final = sql.load_all(__package__)
_NAMES_OF = _SQL["names_of"]

MOST: Final = 10_000


class Names:
    """What a process knows of them. An id never gets another name, so nothing that was found is ever wrong; the topic
    may have been deleted, as its policy tells. What was not found is not kept."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: dict[int, str] = {}

    async def of(self, topic_id: int) -> str | None:
        """The topic's name; None where there is no such topic."""
        return (await self.of_all([topic_id])).get(topic_id)

    async def of_all(self, topic_ids: Iterable[int]) -> dict[int, str]:
        """The names by their ids, without those of topics that there are not. Asks once for all that are not known."""
        names = {topic_id: self._known.get(topic_id) for topic_id in topic_ids}
        unknown = [topic_id for topic_id, name in names.items() if name is None]
        if unknown:
            for row in await self._pool.fetch(_NAMES_OF, unknown):
                names[row["id"]] = row["name"]
                self._keep(row["id"], row["name"])
        return {topic_id: name for topic_id, name in names.items() if name is not None}

    def learn(self, topic: Topic) -> None:
        """Somebody is about to ask for this one."""
        if topic.id not in self._known:
            self._keep(topic.id, topic.name)

    def _keep(self, topic_id: int, name: str) -> None:
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[topic_id] = name
