"""Read and write watches: their topics and places. docs/semantics.md, section 17.

One connection at a time holds a watch. Once another one has taken it over, its writes have no effect.
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
MOST_WATCHES: Final = 50_000  # over all processes
_WID: Final = re.compile(r"wid_[A-Za-z0-9_-]{22}\Z")


class WatchPlace(msgspec.Struct, frozen=True, array_like=True):
    """A watch's place in a topic. `chosen`: the client set it, and nothing was read from it yet."""

    topic_id: int
    seq: int
    chosen: bool = False


class Options(msgspec.Struct, frozen=True):
    """How a watch reads its topics. `nodes`: records of these nodes are left out."""

    nodes: tuple[str, ...]
    limit: int
    max_bytes: int
    heartbeat_ms: int
    tags: bool
    metadata: bool
    data: bool


class HeldWatch(msgspec.Struct, frozen=True):
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
    """Create a watch and return its wid. `owner` is the key that it is bound to, "" for none. Raises Throttled."""
    wid = f"wid_{secrets.token_urlsafe(16)}"
    made = await db.fetchval(_MAKE, wid, owner, _text(options), _text(places), ttl_ms, MOST_WATCHES)
    if made is None:
        raise Throttled(f"The limit is {MOST_WATCHES} watches.", {"limit": "max_watches", "max": MOST_WATCHES})
    return wid


async def take(db: Connection, wid: str, owner: str) -> HeldWatch:
    """Take a watch over from its previous holder. Raises NotFound, and Unauthorized if it is bound to another key."""
    if _WID.match(wid) is None:
        raise _unknown()
    holder = UUID(bytes=secrets.token_bytes(16))
    row = await db.fetchrow(_TAKE, wid, owner, holder, TTL_MS)
    if row is None:
        if await db.fetchval(_FIND, wid) is None:
            raise _unknown()
        raise Unauthorized("This watch is bound to the key that created it.")
    return HeldWatch(wid, holder, _options.decode(row["options"]), _places.decode(row["places"]))


async def keep(db: Connection, held: Sequence[tuple[str, UUID, Mapping[str, WatchPlace] | None]]) -> set[str]:
    """Save places (None: unchanged) and extend the watches' lives. Returns the wids that are still held."""
    rows = await db.fetch(
        _KEEP,
        [wid for wid, _, _ in held],
        [holder for _, holder, _ in held],
        [None if places is None else _text(places) for _, _, places in held],
        TTL_MS,
    )
    return {row["wid"] for row in rows}


async def leave(db: Connection, wid: str, holder: UUID, places: Mapping[str, WatchPlace]) -> None:
    """Save places and release the watch, if it is still held."""
    await db.fetchval(_LEAVE, wid, holder, _text(places), TTL_MS)


async def sweep(db: Connection, limit: int) -> int:
    """Delete up to `limit` expired watches. Returns how many."""
    count: int = await db.fetchval(_SWEEP, limit)
    return count


def _text(value: Options | Mapping[str, WatchPlace]) -> str:
    return _encode(value).decode()


def _unknown() -> NotFound:
    return NotFound("The watch does not exist or has expired. Create a new one.")
