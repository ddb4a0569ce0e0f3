"""The faults that `audit` searches for, each a rule over the jobs' histories.

Pure: frames in, frames out. docs/pipelines.md describes the faults, docs/semantics.md the promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame

FAULTS: Final[Mapping[str, str]] = {
    "lost": "is missing, and no event ended it",
    "undead": "exists, although an event ended it",
    "unmoved": "left for the dead letters and did not arrive",
    "unheralded": "arrived as a dead letter without leaving another topic",
    "unborn": "has events, but none that enqueued it",
    "reborn": "was enqueued a second time",
    "resurrected": "had another event after its end",
    "overlap": "was claimed during another lease",
    "early": "was claimed before it was due",
    "blocked": "was claimed while another job of its group blocked it",
    "foreign": "was settled under a lease that was not its current one",
    "shielded": "was marked as expired during a lease",
    "miscounted": "has a delivery count that does not follow from the one before",
    "exceeded": "was delivered more often than its limit allows",
    "together": "was released while another job of its group was",
    "overtaken": "stayed blocked while a later job of its group was released",
}
# The columns of every rule: the fault, the job, the event that shows it, and another job involved, or NULL.
COLUMNS: Final = ("fault", "topic_id", "topic", "seq", "at", "other")

# A topic, for the rules:
#   whole          whether all of its events are checked
#   settled_at     since when `most` applies
#   most           the delivery limit of jobs without their own; 0: no limit; NULL: no limit is checked
#   letters_since  since when its dead letters are jobs of a queue; NULL: they are not, or it is unknown
TOPICS: Final = "topic_id int, whole boolean, settled_at timestamp, most int, letters_since timestamp"

_JOBS: Final = """
WITH judged AS (
    SELECT h.topic_id, h.topic, h.seq, h.at,
           CASE WHEN h.n = 1 THEN
                    CASE WHEN NOT h.begins AND t.whole THEN 'unborn'
                         WHEN h.came AND h.deliveries <> 0 THEN 'miscounted' END
                WHEN h.event = 'enqueued' THEN 'reborn'
                WHEN h.was NOT IN ('waiting', 'blocked', 'leased')
                     AND NOT (h.event = 'requeued' AND h.came AND h.was IN ('dead_lettered', 'failed', 'expired'))
                     AND NOT (h.event = 'deleted' AND h.was IN ('failed', 'expired')) THEN 'resurrected'
                WHEN h.event = 'claimed' AND h.was = 'leased' AND h.free_at >= h.at THEN 'overlap'
                WHEN h.event = 'claimed' AND h.was = 'blocked' THEN 'blocked'
                WHEN h.event = 'claimed' AND h.free_at > h.at THEN 'early'
                WHEN h.event = 'expired' AND h.was = 'leased' AND h.free_at >= h.at THEN 'shielded'
                WHEN h.event <> 'claimed' AND h.lease <> h.lease_id
                     OR h.event IN ('acked', 'extended', 'released') AND h.lease IS NOT NULL AND h.lease_id IS NULL
                     THEN 'foreign'
                WHEN h.deliveries <> CASE WHEN h.event = 'claimed' THEN h.had + 1 WHEN h.came THEN 0 ELSE h.had END
                     AND NOT (h.event IN ('released', 'superseded') AND h.deliveries = h.had - 1) THEN 'miscounted'
                WHEN h.event = 'claimed' AND h.begins AND h.at >= t.settled_at AND t.most IS NOT NULL
                     AND coalesce(h.max_deliveries, t.most) BETWEEN 1 AND h.deliveries - 1 THEN 'exceeded'
           END AS fault
    FROM {histories} h LEFT JOIN {topics} t ON t.topic_id = h.topic_id
)
SELECT fault, topic_id, topic, seq, at, CAST(NULL AS bigint) AS other FROM judged WHERE fault IS NOT NULL
"""

# A job of a group is released after the previous one has ended. If no two consecutive ones overlap, none do.
_TOGETHER: Final = """
WITH turn AS (
    SELECT topic_id, topic, tenant, grp, seq, at, word, was,
           min(CASE WHEN word NOT IN ('waiting', 'leased', 'blocked') THEN at END) OVER (
               PARTITION BY topic_id, seq ORDER BY at, tx, n ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
           ) AS ended_at
    FROM {histories} WHERE grp IS NOT NULL AND begins
), paired AS (
    SELECT topic_id, topic, seq, at, lag(seq) OVER turns AS other, lag(ended_at) OVER turns AS other_ended_at
    FROM turn WHERE word = 'waiting' AND (was IS NULL OR was NOT IN ('waiting', 'leased'))
    WINDOW turns AS (PARTITION BY topic_id, tenant, grp ORDER BY at, seq)
)
SELECT 'together' AS fault, topic_id, topic, seq, at, other FROM paired
WHERE other IS NOT NULL AND (other_ended_at IS NULL OR other_ended_at > at)
"""

# The blocked job of a group with the lowest seq is released. Blocked jobs in groups where a higher seq was
# ever released are suspects; times are compared for suspects only.
_OVERTAKEN: Final = """
WITH turn AS (
    SELECT topic_id, topic, tenant, grp, seq, at, word, was, next_change_at
    FROM (
        SELECT *, min(CASE WHEN word IS NOT NULL THEN at END) OVER (
                   PARTITION BY topic_id, seq ORDER BY at, tx, n ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
               ) AS next_change_at
        FROM {histories} WHERE grp IS NOT NULL AND begins
    )
), came_out AS (
    SELECT topic_id, tenant, grp, seq, at FROM turn
    WHERE word = 'waiting' AND (was IS NULL OR was NOT IN ('waiting', 'leased'))
), highest AS (
    SELECT topic_id, tenant, grp, max(seq) AS seq FROM came_out GROUP BY topic_id, tenant, grp
), suspect AS (
    SELECT b.topic_id, b.topic, b.tenant, b.grp, b.seq, b.at AS blocked_at, b.next_change_at AS until_at
    FROM turn b JOIN highest h ON h.topic_id = b.topic_id AND h.tenant = b.tenant AND h.grp = b.grp AND h.seq > b.seq
    WHERE b.word = 'blocked'
)
SELECT 'overtaken' AS fault, s.topic_id, s.topic, s.seq, min(o.at) AS at, min_by(o.seq, o.at) AS other
FROM suspect s
JOIN came_out o ON o.topic_id = s.topic_id AND o.tenant = s.tenant AND o.grp = s.grp
     AND o.seq > s.seq AND o.at > s.blocked_at AND (o.at < s.until_at OR s.until_at IS NULL)
GROUP BY s.topic_id, s.topic, s.seq
"""

# A move to a dead-letter queue is one transaction: the job leaves, and arrives with a seq of that topic.
_MOVES: Final = """
WITH gone AS (
    SELECT h.topic_id, h.topic, h.seq, h.at, h.tx, coalesce(h.at < t.letters_since, true) AS may_be_a_record
    FROM {histories} h LEFT JOIN {topics} t ON t.topic_id = h.topic_id WHERE h.event = 'dead_lettered'
), arrived AS (
    SELECT topic_id, topic, seq, at, tx, detail FROM {histories}
    WHERE event = 'enqueued' AND startswith(detail, 'from ')
), matched AS (
    SELECT g.topic_id, g.topic, g.seq, g.at, g.may_be_a_record,
           a.topic_id AS to_id, a.topic AS to_topic, a.seq AS to_seq, a.at AS arrived_at
    FROM gone g FULL JOIN arrived a ON a.tx = g.tx AND a.detail = concat('from ', g.topic, ' ', g.seq)
)
SELECT 'unmoved' AS fault, topic_id, topic, seq, at, CAST(NULL AS bigint) AS other FROM matched
WHERE to_seq IS NULL AND NOT may_be_a_record
UNION ALL
SELECT 'unheralded', to_id, to_topic, to_seq, arrived_at, CAST(NULL AS bigint) FROM matched WHERE seq IS NULL
"""

# Jobs that have not ended, and failed and expired ones, are in the table of jobs; others that have ended are not.
_ENDS: Final = """
WITH latest AS (
    SELECT topic_id, topic, seq, at,
           coalesce(word, was) IN ('waiting', 'blocked', 'leased', 'failed', 'expired') AS lives
    FROM {histories} WHERE next_at IS NULL
)
SELECT CASE WHEN e.lives THEN 'lost' ELSE 'undead' END AS fault, e.topic_id, e.topic, e.seq, e.at,
       CAST(NULL AS bigint) AS other
FROM latest e LEFT JOIN {live} j ON j.topic_id = e.topic_id AND j.seq = e.seq
WHERE e.lives = (j.seq IS NULL)
"""


def faults(histories: DataFrame, topics: DataFrame) -> DataFrame:
    """The faults that events alone show, one row each."""
    sql = histories.sparkSession.sql
    found = [
        sql(_JOBS, histories=histories, topics=topics),
        sql(_TOGETHER, histories=histories),
        sql(_OVERTAKEN, histories=histories),
        sql(_MOVES, histories=histories, topics=topics),
    ]
    return reduce(DataFrame.unionByName, found).select(*COLUMNS)


def loose_ends(histories: DataFrame, live: DataFrame) -> DataFrame:
    """Jobs on which the events and the table of jobs (`live`: topic_id, seq) disagree.

    This is a fault only if the job had no event between the two reads.
    """
    return histories.sparkSession.sql(_ENDS, histories=histories, live=live).select(*COLUMNS)
