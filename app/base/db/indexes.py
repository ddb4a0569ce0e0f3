"""Whether the indexes are there and work. A unique one is a promise: no second job of a key, no second head of a group,
one row of a dedupe id. A restore from a dump that breaks it reports an error, leaves it out, and goes on.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncpg

log = logging.getLogger(__name__)

UNIQUE: Final = frozenset(
    {
        "api_keys_digest_key",
        "api_keys_old_digest_key",
        "api_keys_pkey",
        "archived_days_pkey",
        "audit_pkey",
        "buckets_pkey",
        "dedupe_pkey",
        "defaults_pkey",
        "depth_looks_pkey",
        "depths_pkey",
        "freed_groups_pkey",
        "grants_pkey",
        "grants_user_id_action_topic_pattern_key",
        "groups_pkey",
        "idempotency_pkey",
        "inbox_unchecked_pkey",
        "jobs_group_out",
        "jobs_pending_key",
        "jobs_pkey",
        "lanes_pkey",
        "log_state_pkey",
        "operations_pkey",
        "records_pkey",
        "replays_pkey",
        "saved_views_pkey",
        "schedules_pkey",
        "sign_in_tries_pkey",
        "staged_pkey",
        "stages_pkey",
        "sweep_runs_pkey",
        "sweeps_pkey",
        "tallies_pkey",
        "token_secret_pkey",
        "topic_reads_pkey",
        "topic_schemas_pkey",
        "topic_stats_pkey",
        "topic_stats_progress_pkey",
        "topics_id_key",
        "topics_pkey",
        "user_events_pkey",
        "users_pkey",
        "users_username",
        "watches_pkey",
        "webhook_secrets_pkey",
        "writes_pkey",
    }
)
_UNDER_WAY: Final = re.compile(r"_cc(new|old)\d*$")  # what REINDEX CONCURRENTLY makes, and leaves behind when it fails
_LOOK: Final = """
SELECT c.relname AS name, i.indisunique AS is_unique, i.indisvalid AND i.indisready AND i.indislive AS works
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = to_regnamespace('holdfast')
"""


async def faults(connection: asyncpg.Connection[asyncpg.Record]) -> list[str]:
    """What is wrong with the indexes of the current schema, and what to do about it, one sentence each."""
    rows = await connection.fetch(_LOOK)
    there = {row["name"] for row in rows if row["is_unique"]}
    broken = sorted(row["name"] for row in rows if not row["works"])
    for name in filter(_UNDER_WAY.search, broken):
        log.warning("The index holdfast.%s is INVALID: unless a REINDEX is under way, drop it", name)
    return [
        *(f"The unique index holdfast.{name} is missing: docs/schema.sql has it" for name in sorted(UNIQUE - there)),
        *(
            f"The index holdfast.{name} is INVALID: REINDEX INDEX CONCURRENTLY, or drop it if it is your own"
            for name in broken
            if not _UNDER_WAY.search(name)
        ),
    ]
