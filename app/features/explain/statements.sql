-- name: explain_job
-- A job as it is now. One row, or none if the job doesn't exist.
--   $1  topic's name
--   $2  topic's id
--   $3  job's seq
--   $4  whether jobs here run out of deliveries
--   $5  topic's max_deliveries, 0 for no limit
-- state     by the database's clock (holdfast.state_now, functions/jobs.sql of the kernel): leased while the lease is
--           valid, expired from expires_at on, marked or not, cancelled once a cancelled job's lease has ended
-- due       whether the job is in the due part of its lane
-- place     its time in µs if due, otherwise its position
-- spent     whether it has no deliveries left
-- Times are in ms since 1970.   Index: primary key.
SELECT holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
       j.state::text IN ('leased', 'scheduled') AS due, j.tenant, j.grp, j.priority,
       CASE WHEN j.state::text = 'ready' THEN j.position
            ELSE (date_part('epoch', j.visible_at) * 1000000)::bigint END AS place,
       j.deliveries, j.crashes, coalesce(j.max_deliveries, $5::integer) AS max_deliveries,
       $4::boolean AND coalesce(j.max_deliveries, $5::integer) > 0
           AND j.deliveries >= coalesce(j.max_deliveries, $5::integer) AS spent,
       j.cancelled_at IS NOT NULL AS cancelled,
       j.node, j.last_error, j.original_topic, j.original_seq, j.original_deliveries,
       CASE WHEN j.progress_lease = j.lease_id THEN j.progress END AS percent, j.progress_note AS note,
       (date_part('epoch', j.progress_at) * 1000)::bigint AS progress_ms,
       (date_part('epoch', now()) * 1000)::bigint AS now_ms,
       (date_part('epoch', j.created_at) * 1000)::bigint AS created_ms,
       (date_part('epoch', j.updated_at) * 1000)::bigint AS updated_ms,
       (date_part('epoch', j.visible_at) * 1000)::bigint AS visible_ms,
       (date_part('epoch', j.leased_at) * 1000)::bigint AS leased_ms,
       (date_part('epoch', j.expires_at) * 1000)::bigint AS expires_ms
FROM holdfast.jobs j WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = $3::bigint

-- name: group_head
-- The first job of a group, and how many blocked jobs of the group come before a job. Always one row.
--   $1  topic's name
--   $2  tenant
--   $3  group
--   $4  seq of the job
--   $5  jobs to count at most
-- state is by the database's clock, as in explain_job. It and seq are NULL if the group has no first job right now: its
-- successor is being unblocked. until_ms is in ms since 1970.   Indexes: jobs_group_out, jobs_blocked.
SELECT o.seq, o.state, o.node, o.until_ms, o.deliveries,
       (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = $2 AND j.grp = $3 AND j.state = 'blocked' AND j.seq < $4::bigint
            ORDER BY j.seq LIMIT $5::integer
        ) b) AS before
FROM (SELECT 1) one
LEFT JOIN LATERAL (
    SELECT j.seq, j.node, j.deliveries, (date_part('epoch', j.visible_at) * 1000)::bigint AS until_ms,
           holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.tenant = $2 AND j.grp = $3 AND j.grp IS NOT NULL AND j.original_topic IS NULL
      AND j.state IN ('ready', 'scheduled', 'leased')
    LIMIT 1
) o ON true

-- name: lanes_ahead
-- How many jobs of a topic could be claimed now. One row for each of the first 2000 lanes: its due and its ready jobs.
--   $1   topic's name
--   $2   jobs to count at most, of each kind in each lane
-- The place of a job, or NULLs. In its lane only the jobs before it count:
--   $3   tenant
--   $4   priority
--   $5   count due jobs before this time, in µs since 1970 (NULL: all)
--   $6   count fresh jobs below this position (NULL: all, 0: none)
-- Low marks of the lanes that have one:
--   $7   tenants
--   $8   priorities
--   $9   positions
--   $10  times in µs since 1970
-- Plain reads: takes no locks and waits for none.   Indexes: primary key of lanes, jobs_ready, jobs_due.
WITH lane AS MATERIALIZED (
    SELECT l.tenant, l.priority, coalesce(m.low, 0) AS low,
           coalesce(timestamptz 'epoch' + m.due_low * interval '1 microsecond', '-infinity') AS due_low,
           coalesce(l.tenant = $3::text AND l.priority = $4::smallint, false) AS own
    FROM holdfast.lanes l
    LEFT JOIN unnest($7::text[], $8::smallint[], $9::bigint[], $10::bigint[]) AS m(tenant, priority, low, due_low)
        ON m.tenant = l.tenant AND m.priority = l.priority
    WHERE l.topic = $1 ORDER BY l.tenant, l.priority LIMIT 2000
), bound AS MATERIALIZED (
    SELECT l.*,
           CASE WHEN l.own THEN least(now(), timestamptz 'epoch' + $5::bigint * interval '1 microsecond')
                ELSE now() END AS until,
           CASE WHEN l.own THEN coalesce($6::bigint, 9223372036854775807) ELSE 9223372036854775807 END AS below
    FROM lane l
)
SELECT b.tenant, b.priority, due.n AS due, ready.n AS ready
FROM bound b CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = b.tenant AND j.priority = b.priority
          AND j.state IN ('leased', 'scheduled') AND j.visible_at > b.due_low AND j.visible_at < b.until
        ORDER BY j.visible_at LIMIT $2::integer
    ) d
) due CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = b.tenant AND j.priority = b.priority
          AND j.state = 'ready' AND j.position > b.low AND j.position < b.below
        ORDER BY j.position LIMIT $2::integer
    ) r
) ready
