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
