"""The audit trail: an entry for each change by an operator, of the kinds in Action. docs/keys.md describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Final

import msgspec

from app.base.db import sql
from app.errors import InvalidRequest
from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_RECORD = _SQL["record"]
_PAGE = _SQL["page"]


class Action(Enum):
    TOPIC_CREATED = "topic.created"
    TOPIC_CHANGED = "topic.changed"
    TOPIC_DELETED = "topic.deleted"
    TOPIC_PAUSED = "topic.paused"
    TOPIC_RESUMED = "topic.resumed"
    TOPIC_DRAINED = "topic.drained"
    KEY_MADE = "key.made"
    KEY_ROTATED = "key.rotated"
    KEY_REVOKED = "key.revoked"
    USER_MADE = "user.made"
    USER_CHANGED = "user.changed"
    USER_DELETED = "user.deleted"
    GRANT_MADE = "grant.made"
    GRANT_REVOKED = "grant.revoked"
    SCHEDULE_CHANGED = "schedule.changed"
    CRON_CREATED = "cron.created"
    CRON_CHANGED = "cron.changed"
    CRON_DELETED = "cron.deleted"
    CRON_RUN = "cron.run"
    JOBS_CANCELLED = "jobs.cancelled"
    LEASES_RELEASED = "leases.released"
    RECORDS_DELETED = "records.deleted"
    TOPIC_PURGED = "topic.purged"
    CLUSTER_PURGED = "cluster.purged"
    LOG_PURGED = "log.purged"
    REPLAY_STARTED = "replay.started"
    REQUEUE_STARTED = "requeue.started"
    REQUEUE_CANCELLED = "requeue.cancelled"
    REQUEUE_ENDED = "requeue.ended"
    CANCEL_STARTED = "cancel.started"
    CANCEL_CANCELLED = "cancel.cancelled"
    CANCEL_ENDED = "cancel.ended"


_ACTIONS: Final = [action.value for action in Action]


class Actor(msgspec.Struct, frozen=True):
    """The author of a change. `address`: where the request came from, as the service's socket saw it."""

    id: str
    name: str | None = None
    address: str | None = None


OPEN: Final = "open"  # id of a caller that needs no key
SERVICE: Final = Actor("holdfast")  # the service itself, for example for a dead-letter topic that it creates
COMMAND_LINE: Final = Actor("command line")


class Entry(msgspec.Struct, frozen=True):
    """A change. `detail` is JSON."""

    id: int
    at: datetime
    actor: str
    actor_name: str | None
    address: str | None
    action: str
    subject: str
    detail: str


async def record(db: Connection, by: Actor, action: Action, subject: str, detail: Mapping[str, object]) -> None:
    """Add an entry. `db` must be in the transaction of the change: both are stored, or neither."""
    text = msgspec.json.encode(detail).decode()
    await db.execute(_RECORD, by.id, by.name, by.address, action.value, subject, text)


async def page(
    db: Connection,
    before: int,
    limit: int,
    *,
    actor: str | None = None,
    subject: str | None = None,
    action: str | None = None,
    since: datetime | None = None,
    prefixes: Sequence[str] = (),
) -> list[Entry]:
    """Up to `limit` entries with ids below `before` that match the filters, the newest first.

    With `prefixes`, only entries on topics whose names start with one of these. Raises InvalidRequest for an unknown
    action, and for NUL.
    """
    if action is not None and action not in _ACTIONS:
        raise InvalidRequest(f"action must be one of {', '.join(_ACTIONS)}.")
    if any("\0" in given for given in (actor, subject) if given is not None):
        raise InvalidRequest("A parameter has a NUL character.")
    rows = await db.fetch(_PAGE, before, limit, actor, subject, action, list(prefixes), since)
    return [Entry(**row) for row in rows]


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """The values that differ: name → {"from", "to"}."""
    return {name: {"from": before.get(name), "to": to} for name, to in after.items() if before.get(name) != to}
