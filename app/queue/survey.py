"""What a scrape asks of many queues at a time, each bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from app.db import sql
from app.queue.model import Connection, Topic
from app.queue.sequences import rows_of

_SURVEY = sql.load(__package__, "survey")

LOOKED_AT: Final = 100  # jobs of a queue, for its first live one
FINISHED: Final = 1_000  # failed and expired jobs of a queue


class Sight(msgspec.Struct, frozen=True):
    """How far a queue goes, and its failed jobs, of up to FINISHED that have ended; `earliest_seq` is None where none
    of the first LOOKED_AT jobs is live."""

    topic: str
    head_seq: int
    earliest_seq: int | None
    failed: int


async def survey(db: Connection, queues: Sequence[Topic]) -> dict[str, Sight]:
    """By name; a topic that was deleted is left out."""
    names, sequences = [queue.name for queue in queues], [queue.sequence for queue in queues]
    rows = await rows_of(db, _SURVEY, names, sequences, LOOKED_AT, FINISHED)
    return {row["topic"]: Sight(**dict(row)) for row in rows}
