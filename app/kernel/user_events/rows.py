"""Events for the application's users, kept for minutes. docs/user-events.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection, Topic, id_of

_SQL: Final = sql.load_all(__package__)
_SEND = _SQL["send_user_events"]
_READ = _SQL["read_user_events"]
_FROM = _SQL["user_events_from"]
_AFTER = _SQL["user_events_after"]
_SWEEP = _SQL["sweep_user_events"]
_USERS_OF = _SQL["users_of"]


class New(msgspec.Struct, frozen=True):
    """An event that is to be kept; `data` is JSON."""

    user_id: str
    event: str
    data: str


class Event(msgspec.Struct, frozen=True):
    """One that is kept; of one user, ids ascend."""

    id: int
    event: str
    data: str


class Whose(msgspec.Struct, frozen=True):
    """The user whom a job is for, and its id."""

    user_id: str
    job_id: str


async def send(db: Connection, events: Sequence[New], most: int) -> list[int]:
    """Keep events: their ids, in order. Of one user about `most` are kept, the newest.

    Waits for others that write to the same users, up to their commits.
    """
    columns = [e.user_id for e in events], [e.event for e in events], [e.data for e in events]
    ids: list[int] = await db.fetchval(_SEND, *columns, most)
    return ids


async def read(db: Connection, user_id: str, after: int, limit: int) -> list[Event]:
    """Up to `limit` events of a user after an id, ascending."""
    return [Event(*row) for row in await db.fetch(_READ, user_id, after, limit)]


async def begin(db: Connection, user_id: str, after: int) -> tuple[int, bool]:
    """The id of a user's newest event, 0 if there is none; and whether all that came after this id are still there."""
    row = await db.fetchrow(_FROM, user_id, after)
    assert row is not None, "it answers one row always"
    return row["newest"], after == 0 or row["known"]


async def after(db: Connection, seen: Sequence[tuple[str, int]]) -> list[str]:
    """Which of these users have events after these ids."""
    return [row["user_id"] for row in await db.fetch(_AFTER, [user for user, _ in seen], [at for _, at in seen])]


async def sweep(db: Connection, keep: timedelta, most: int, limit: int) -> int:
    """Forget events older than `keep`, and all but the newest `most`, at most `limit` of them: how many."""
    count: int = await db.fetchval(_SWEEP, keep, most, limit)
    return count


async def users_of(db: Connection, topic: Topic, seqs: Sequence[int]) -> dict[int, Whose]:
    """Whom jobs are for, by seq, of those that are for a user."""
    rows = await db.fetch(_USERS_OF, topic.name, seqs)
    return {row["seq"]: Whose(row["user_id"], id_of(row["topic_id"], row["first_seq"])) for row in rows}
