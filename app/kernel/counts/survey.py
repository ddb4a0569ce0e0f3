"""What a scrape asks of many queues at a time, each bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.batching import rows_of
from app.kernel.model import Connection, Topic

_SQL: Final = sql.load_all(__package__)
_SURVEY = _SQL["survey"]
_UNARCHIVED = _SQL["unarchived"]

LOOKED_AT: Final = 100  # jobs of a queue, for its first live one
LETTERS: Final = 10_000  # dead letters of a queue


class Sight(msgspec.Struct, frozen=True):
    """How far a queue goes, and its failed jobs: those kept in it, and up to LETTERS that are in its dead-letter topic.
    `earliest_seq` is None where none of the first LOOKED_AT jobs is live."""

    topic: str
    head_seq: int
    earliest_seq: int | None
    failed: int
    letters: int

    @property
    def dead(self) -> int:
        """All its failed jobs."""
        return self.failed + self.letters


async def survey(db: Connection, queues: Sequence[tuple[Topic, str | None]]) -> dict[str, Sight]:
    """Sights of queues, each given with the name of its dead-letter topic, by name; a topic that was deleted is left
    out."""
    topics = [topic for topic, _ in queues]
    rows = await rows_of(
        db,
        _SURVEY,
        [topic.name for topic in topics],
        [topic.sequence for topic in topics],
        [topic.id for topic in topics],
        [dead_letter for _, dead_letter in queues],
        LOOKED_AT,
        LETTERS,
    )
    return {row["topic"]: Sight(**dict(row)) for row in rows}


async def unarchived(db: Connection) -> dict[str, int]:
    """How many days that are over have no files yet, by table: of events, of results, of the archive."""
    return {row["of_table"]: row["days"] for row in await db.fetch(_UNARCHIVED)}
