"""Watches in PostgreSQL: what a client watches, and how far it has come. docs/semantics.md, section 17.

One connection at a time holds a watch; what it saves later than that counts for nothing.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from app.base.db import sql
from app.errors import NotFound, Throttled, Unauthorized
from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_MAKE = _SQL["make_watch"]
_TAKE = _SQL["take_watch"]
_FIND = _SQL["find_watch"]
_KEEP = _SQL["keep_watches"]
_LEAVE = _SQL["leave_watch"]
_SWEEP = _SQL["sweep_watches"]

TTL_MS: Final = 300_000  # without a connection
MOST_WATCHES: Final = 50_000  # of all processes together
_WID: Final = re.compile(r"wid_[A-Za-z0-9_-]{22}\Z")


class WatchPlace(msgspec.Struct, frozen=True, array_like=True):
    """How far a watch has come in a topic. `chosen`: the client set this place, and nothing was read from it yet."""

    topic_id: int
    seq: int
    chosen: bool = False


class Options(msgspec.Struct, frozen=True):
    """What a watch reads of every topic. `nodes`: whose records it leaves out."""

    nodes: tuple[str, ...]
    limit: int
    max_bytes: int
    heartbeat_ms: int
    tags: bool
    metadata: bool
    data: bool


class HeldWatch(msgspec.Struct, frozen=True):
    """A watch that a connection has taken."""

    wid: str
    holder: UUID
    options: Options
    places: dict[str, WatchPlace]


_options = msgspec.json.Decoder(Options)
_places = msgspec.json.Decoder(dict[str, WatchPlace])
_encode = msgspec.json.Encoder().encode


async def make(
    db: Connection, owner: str, options: Options, places: Mapping[str, WatchPlace], *, ttl_ms: int = TTL_MS
) -> str:
    """Keep a new watch: its wid. `owner` is the key it is bound to, "" for none. Raises Throttled."""
    wid = f"wid_{secrets.token_urlsafe(16)}"
    made = await db.fetchval(_MAKE, wid, owner, _text(options), _text(places), ttl_ms, MOST_WATCHES)
    if made is None:
        raise Throttled("Too many watches are kept.", {"limit": "max_watches", "max": MOST_WATCHES})
    return wid


async def take(db: Connection, wid: str, owner: str) -> HeldWatch:
    """Hold a watch from now on; whoever held it does so no more. Raises NotFound, and Unauthorized if it is bound to
    another key."""
    if _WID.match(wid) is None:
        raise _unknown()
    holder = UUID(bytes=secrets.token_bytes(16))
    row = await db.fetchrow(_TAKE, wid, owner, holder, TTL_MS)
    if row is None:
        if await db.fetchval(_FIND, wid) is None:
            raise _unknown()
        raise Unauthorized("This watch is bound to the key that made it.")
    return HeldWatch(wid, holder, _options.decode(row["options"]), _places.decode(row["places"]))


async def keep(db: Connection, held: Sequence[tuple[str, UUID, Mapping[str, WatchPlace] | None]]) -> set[str]:
    """Save places, None for those that have not moved, and extend the watches' lives: those that are still held."""
    rows = await db.fetch(
        _KEEP,
        [wid for wid, _, _ in held],
        [holder for _, holder, _ in held],
        [None if places is None else _text(places) for _, _, places in held],
        TTL_MS,
    )
    return {row["wid"] for row in rows}


async def leave(db: Connection, wid: str, holder: UUID, places: Mapping[str, WatchPlace]) -> None:
    """Save places and let the watch go, if it is still held."""
    await db.fetchval(_LEAVE, wid, holder, _text(places), TTL_MS)


async def sweep(db: Connection, limit: int) -> int:
    """Forget up to `limit` watches whose time has passed: how many."""
    count: int = await db.fetchval(_SWEEP, limit)
    return count


def _text(value: Options | Mapping[str, WatchPlace]) -> str:
    return _encode(value).decode()


def _unknown() -> NotFound:
    return NotFound("There is no such watch, or it has expired. Make a new one.")
