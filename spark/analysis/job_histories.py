"""The state of each job before each of its events: where it was, under which lease, until when.

docs/semantics.md, section 13, lists the events. Pure: a frame in, a frame out.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

# The columns that are read.
EVENTS: Final = (
    "at", "tx", "topic_id", "topic", "seq", "event", "deliveries", "lease_id", "node", "until", "detail", "tenant",
    "grp", "max_deliveries",
)  # fmt: skip

# came: the job starts here or returns from an end. word: its state from here on, NULL for no change.
# The events of a job are in the order of the database's clock, because each was written under the lock on its row.
# Within a transaction the enqueue is first.
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
    """Each event with the job's state before it. The other columns are the ledger's.

    n              its place among the job's events, from 1
    begins         whether the job's first event here is its arrival; otherwise its earlier state is unknown
    had            the deliveries before it
    was            the job's state: waiting, blocked, leased, or the event that ended it
    word           its state from here on; NULL: unchanged
    lease          the id of its lease, '' for none
    free_at        when it becomes claimable again: the end of the lease or of the delay
    next_at        the time of its next event, NULL for the last one
    came           whether it arrived or returned with this event
    tenant, grp, max_deliveries   from its arrival, on all of its events; '' and NULL if unknown

    was, lease, free_at and had are NULL if these events don't tell.

    """
    return events.sparkSession.sql(_HISTORIES, events=events.select(*EVENTS))
