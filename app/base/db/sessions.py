"""Whether sessions have the settings that they were to get: a pooler between may have dropped them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import asyncpg

if TYPE_CHECKING:
    Pool = asyncpg.Pool[asyncpg.Record]

log = logging.getLogger(__name__)

_FOUND: Final = "SELECT name, setting FROM pg_settings WHERE name = ANY($1)"
_HINT: Final = 'docs/configuration.md, "Behind PgBouncer", says how to hang them on the role'


async def look_at(pool: Pool, wanted: Mapping[str, str]) -> None:
    """Warn of settings that did not arrive; of a timeout, one that is none at all. app/base/db/schema.py asks for what
    a crash would lose."""
    found = {row["name"]: row["setting"] for row in await pool.fetch(_FOUND, list(wanted))}
    lost = [name for name, value in wanted.items() if _is_lost(name, value, found[name])]
    if lost:
        log.warning("Sessions did not get these settings, so that statements may be slow or hang: %s; %s",
                    ", ".join(sorted(lost)), _HINT)  # fmt: skip


def _is_lost(name: str, value: str, found: str) -> bool:
    return found == "0" if name.endswith("_timeout") else found != value
