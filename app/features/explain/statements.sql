-- name: explain_job
-- What there is to say about a job at this moment.   $1 topic  $2 topic id  $3 seq
--   $4 whether deliveries run out here  $5 the topic's max_deliveries, 0 for no end
-- A row, or none if it is not there: its state by the database's clock (`leased` is a good lease; what has outlived its time
-- is expired, marked or not; what was cancelled is so once its lease has ended), whether it stands in the due part of its
-- lane, whether its last delivery is over, and whether it was cancelled. Times in ms since 1970; `place` is its position,
-- or its time in µs.   The function: functions/jobs.sql of the kernel. Index: primary key.
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
-- What is out of a group, and how many of it wait before a job.   $1 topic  $2 tenant  $3 group  $4 seq  $5 most to count
-- Answers one row: the seq of the job that is out, its state by the database's clock (as in explain_job; NULL: none is, its
-- successor is being let through), who holds it and until when, in ms since 1970, and its delivery; before, blocked ones with lower seqs.
-- Indexes: jobs_group_out, jobs_blocked.
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
-- How many jobs of a topic could be claimed now, by lane.   $1 topic  $2 most jobs of a part of a lane to look at
--   a job's place, or NULLs: of its lane, only what is before it counts:  $3 tenant  $4 priority
--   $5 due jobs before this time, in µs since 1970 (NULL: all)  $6 fresh ones below this position (NULL: all; 0: none)
--   low marks of lanes that have one:  $7 tenants  $8 priorities  $9 positions  $10 times in µs since 1970
-- One row for each of the first 2000 lanes: due and ready jobs, $2 of each at most.
-- Plain reads: takes no lock and waits for none.   Indexes: primary key of lanes, jobs_ready, jobs_due.
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
