"""What the ledger tells of each job, event by event: where it was before, under which lease, until when.

docs/semantics.md, section 13, has the events. Pure: a frame in, a frame out.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

# What is read of the ledger.
EVENTS: Final = (
    "at", "tx", "topic_id", "topic", "seq", "event", "deliveries", "lease_id", "node", "until", "detail", "tenant",
    "grp", "max_deliveries",
)  # fmt: skip

# came: the job begins here, or comes back from where it was out. word: where it is from here on, NULL for no change.
# Rows of one job follow each other by the database's clock: each was written under the lock on the job's row. In one
# transaction a job is enqueued first.
_HISTORIES: Final = """
WITH told AS (
    SELECT at, tx, topic_id, topic, seq, event, deliveries, lease_id, node, until, detail, tenant, grp, max_deliveries,
           event = 'enqueued' OR (event = 'requeued' AND NOT startswith(detail, 'to ')) AS came
    FROM {events}
), placed AS (
    SELECT *,
           CASE WHEN came AND (endswith(detail, 'blocked') OR (event = 'requeued' AND until IS NULL)) THEN 'blocked'
                WHEN came OR event IN ('released', 'unblocked') THEN 'waiting'
                WHEN event = 'updated' THEN CASE WHEN until IS NOT NULL THEN 'waiting' END
                WHEN event IN ('claimed', 'extended') THEN 'leased'
                ELSE event END AS word
    FROM told
)
SELECT at, tx, topic_id, topic, seq, event, deliveries, lease_id, node, until, detail, came, word,
       coalesce(max(tenant) OVER whole, '') AS tenant,
       max(grp) OVER whole AS grp,
       max(max_deliveries) OVER whole AS max_deliveries,
       first(came) OVER job AS begins,
       row_number() OVER job AS n,
       lead(at) OVER job AS next_at,
       lag(deliveries) OVER job AS had,
       last(word, true) OVER before AS was,
       last(CASE WHEN event = 'claimed' THEN lease_id WHEN word <> 'leased' THEN '' END, true) OVER before AS lease,
       last(CASE WHEN word IS NOT NULL THEN coalesce(until, at) END, true) OVER before AS free_at
FROM placed
WINDOW whole AS (PARTITION BY topic_id, seq),
       job AS (PARTITION BY topic_id, seq ORDER BY at, tx, event <> 'enqueued'),
       before AS (PARTITION BY topic_id, seq ORDER BY at, tx, event <> 'enqueued'
                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""


def histories(events: DataFrame) -> DataFrame:
    """Each event with what was true before it.

    n              its place among the job's events, from 1
    begins         whether the job's first event among these is its arrival: else what was before is not known
    had            the deliveries before it
    was            where the job was: waiting, blocked, leased; or how it ended, the name of the event
    word           where it is from here on; NULL: it stays where it was
    lease          the id under which it was held, '' for none
    free_at        when it could be had again: the end of the lease, or of the delay
    next_at        when its next event was, NULL for the last one
    came           whether it arrived by this event, or came back from where it was out
    tenant, grp, max_deliveries   what its arrival says, on all of its events; '' and NULL where it says nothing
    The others are the ledger's. was, lease, free_at and had are NULL where nothing among these events says it.
    """
    return events.sparkSession.sql(_HISTORIES, events=events.select(*EVENTS))
