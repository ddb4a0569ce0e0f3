-- Lease jobs to a cohort of callers: the i-th job that can be leased takes the i-th slot.
--   $1   topic
--   Lanes, in claim order, each once:
--   $2   tenants
--   $3   priorities
--   $4   ready jobs above this position
--   $5   due jobs after this time, in µs since 1970; NULL skips the due part
--   $6   most due jobs, or NULL for no limit; the array may be shorter, and the rest then has no limit
--   Shares, one per tenant:
--   $7   the share's last lane, as a place in $2
--   $8   most jobs to read from its lanes
--   Slots, as many as jobs are read:
--   $9   lease ids
--   $10  the slot's caller, from 1
--   Callers:
--   $11  nodes
--   $12  lease lengths in ms
--   $13  the topic's max_deliveries, 0 for no limit; NULL if deliveries are not limited here
--   $14  whether to return `more`, the extra fields of the messages dialect (NULL if not)
--   $15  bytes of payload after which no more jobs are leased
-- `candidates` are the jobs that were found and locked, `seats` the candidates that can be leased, each with its slot,
-- and `leases` the jobs that were leased.
-- One row per job, and one for the clock. `kind` is one of:
--   leased     a job with its slot
--   again      the same, but its last lease had passed its deadline
--   exhausted  not leased: it has no deliveries left. The caller removes it with bury or fail
--   expired    not leased: its time to live has passed. The caller removes it with expire
--   lost       not leased: it was locked, but had been changed meanwhile. It is still in the table
--   heavy      not leased: the jobs before it already had $15 bytes. It is still in the table
--   clock      always one row, the last: `place` is now()
-- `lane` is the lane's place in $2 (from 1). `due` says whether the job was in the lane's due part. `place` is its
-- position there: a position, or a time in µs since 1970. `created` is in seconds since 1970, exact to the µs. `rare`
-- holds fields that few jobs have; it is NULL if the job has none of them.
-- Lanes are read in order, the due part of each before its ready part, until a share or all slots are full. All lanes
-- of a share before the last one that had jobs were read to their ends.
-- Compares with now(), because an index can serve that. Writes clock_timestamp(), so that no lease is too short.
-- Updates by ctid: a join by key becomes a scan of the whole index when statistics are stale.
-- Indexes: jobs_due, jobs_ready. Needs the planner settings of the hot pool.
WITH candidates AS MATERIALIZED (
    SELECT y.* FROM (
        SELECT coalesce(($7::integer[])[s.n - 1], 0) + 1 AS first, s.last, s.most
        FROM unnest($7::integer[], $8::integer[]) WITH ORDINALITY AS s(last, most, n)
    ) share CROSS JOIN LATERAL (
        SELECT x.*, share.first - 1 + l.ord AS ord
        FROM unnest(($2::text[])[share.first:share.last], ($3::smallint[])[share.first:share.last],
                    ($4::bigint[])[share.first:share.last], ($5::bigint[])[share.first:share.last],
                    ($6::integer[])[share.first:share.last])
            WITH ORDINALITY AS l(tenant, priority, after, due_after, most_due, ord)
        CROSS JOIN LATERAL (
            SELECT * FROM (
                SELECT ctid AS tid, 0 AS part, j.state::text = 'leased' AS again, j.visible_at AS began_at,
                       (date_part('epoch', j.visible_at) * 1000000)::bigint AS place, j.seq,
                       octet_length(j.payload) AS size,
                       CASE WHEN j.expires_at <= now() THEN 'expired'
                            WHEN $13::integer IS NOT NULL AND coalesce(j.max_deliveries, $13::integer) > 0
                                 AND j.deliveries >= coalesce(j.max_deliveries, $13::integer) THEN 'exhausted'
                       END AS spent
                FROM holdfast.jobs j
                WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
                  AND j.state IN ('leased', 'scheduled') AND j.visible_at < now()
                  AND j.visible_at > timestamptz 'epoch' + l.due_after * interval '1 microsecond'
                ORDER BY j.visible_at LIMIT coalesce(l.most_due, cardinality($9::uuid[])) FOR UPDATE SKIP LOCKED
            ) due
            UNION ALL
            SELECT * FROM (
                SELECT ctid, 1, false, j.visible_at, j.position, j.seq, octet_length(j.payload),
                       CASE WHEN j.expires_at <= now() THEN 'expired' END
                FROM holdfast.jobs j
                WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
                  AND j.state = 'ready' AND j.position > l.after
                ORDER BY j.position LIMIT cardinality($9::uuid[]) FOR UPDATE SKIP LOCKED
            ) ready
        ) x LIMIT share.most
    ) y LIMIT cardinality($9::uuid[])
), seats AS MATERIALIZED (
    SELECT tid, ord, part, again, began_at, place, seq, row_number() OVER w AS slot, sum(size) OVER w - size AS before
    FROM candidates WHERE spent IS NULL WINDOW w AS (ORDER BY ord, part, place ROWS UNBOUNDED PRECEDING)
), leases AS (
    UPDATE holdfast.jobs j
    SET state = 'leased', leased_at = clock_timestamp(), deliveries = j.deliveries + 1,
        crashes = j.crashes + s.again::integer,
        lease_id = ($9::uuid[])[s.slot], node = ($11::text[])[($10::integer[])[s.slot]],
        visible_at = clock_timestamp() + ($12::bigint[])[($10::integer[])[s.slot]] * interval '1 ms'
    FROM seats s WHERE j.ctid = s.tid AND s.before < $15::bigint
    RETURNING s.slot, s.ord, s.part, s.again, s.began_at, s.place, j.tenant, j.topic_id, j.seq, j.deliveries, j.lease_id,
              j.node, j.visible_at, j.created_at, j.tag, j.metadata, j.payload, j.content_type,
              CASE WHEN j.key IS NOT NULL OR j.grp IS NOT NULL OR j.original_topic IS NOT NULL OR j.crashes > 0
                   THEN ROW(j.original_topic, j.original_seq, j.original_deliveries, j.key, j.grp, j.crashes,
                            j.original_crashes) END AS rare,
              CASE WHEN $14::boolean
                   THEN ROW(j.last_error, (date_part('epoch', j.expires_at) * 1000)::bigint, j.max_deliveries,
                            (date_part('epoch', j.dlq_moved_at) * 1000)::bigint, j.first_topic_id, j.first_seq) END AS more
), events AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until, began_at, tenant)
    SELECT $1, topic_id, seq, 'claimed', deliveries, lease_id, node, visible_at, began_at, nullif(tenant, '') FROM leases
), tallies AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, leased)
    SELECT min(topic_id), -sum(part), sum(part + again::integer - 1), sum(1 - again::integer) FROM leases
    HAVING count(*) > 0
)
SELECT CASE WHEN again THEN 'again' ELSE 'leased' END AS kind, ord AS lane, part = 0 AS due, place, slot, seq, deliveries,
       (date_part('epoch', visible_at) * 1000)::bigint AS deadline_ms,
       date_part('epoch', created_at) AS created, tag, metadata, payload, content_type, rare, more
FROM leases
UNION ALL
SELECT spent, ord, part = 0, place, NULL, seq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM candidates WHERE spent IS NOT NULL
UNION ALL
SELECT CASE WHEN before < $15::bigint THEN 'lost' ELSE 'heavy' END, ord, part = 0, place, NULL, seq, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL
FROM seats
WHERE (SELECT count(*) FROM leases) < (SELECT count(*) FROM seats) AND slot NOT IN (SELECT slot FROM leases)
UNION ALL
SELECT 'clock', NULL, NULL, (date_part('epoch', now()) * 1000000)::bigint, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL
