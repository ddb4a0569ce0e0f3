-- Lease jobs with certain tags to a cohort of callers. The rows, and the parameters up to $18, are those of claim.sql.
--   $1 topic  $2 most jobs to look at  $3 tenants  $4 priorities  $5 ready jobs above this position  $6 due jobs after this
--   time  $7 lease ids  $8 slots' callers  $9 nodes  $10 lease lengths  $11 whether deliveries run out  $12 max_deliveries
--   $13 whether `more` is wanted  $14, $15, $16 shares: first and last lanes, most jobs  $17 most due jobs  $18 bytes
--   $19 tags, each once
-- One more kind of row:   taken   a job that somebody else had locked: those behind it were not looked at
-- Fresh jobs are found tag by tag, merged by their positions, and locked only then: what is not leased is not locked. Jobs
-- whose time has come are looked through, whatever their tags: an index of them would cost each claim of a tagged job.
-- Indexes: jobs_tagged, jobs_due. Needs the hot pool's planner settings.
WITH picked AS MATERIALIZED (
    SELECT y.* FROM unnest($14::integer[], $15::integer[], $16::integer[]) AS share(first, last, most) CROSS JOIN LATERAL (
        SELECT x.*, share.first - 1 + l.ord AS ord
        FROM unnest(($3::text[])[share.first:share.last], ($4::smallint[])[share.first:share.last],
                    ($5::bigint[])[share.first:share.last], ($6::bigint[])[share.first:share.last],
                    ($17::integer[])[share.first:share.last])
            WITH ORDINALITY AS l(tenant, priority, after, due_after, most_due, ord)
        CROSS JOIN LATERAL (
            SELECT * FROM (
                SELECT ctid AS tid, 0 AS part, j.state::text = 'leased' AS again, j.visible_at AS began_at,
                       (date_part('epoch', j.visible_at) * 1000000)::bigint AS place, j.seq,
                       octet_length(j.payload) AS size,
                       CASE WHEN j.expires_at <= now() THEN 'expired'
                            WHEN $11::boolean AND coalesce(j.max_deliveries, $12::integer) > 0
                                 AND j.deliveries >= coalesce(j.max_deliveries, $12::integer) THEN 'exhausted'
                       END AS spent
                FROM holdfast.jobs j
                WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority AND j.tag = ANY ($19::text[])
                  AND j.state IN ('leased', 'scheduled') AND j.visible_at < now()
                  AND j.visible_at > timestamptz 'epoch' + l.due_after * interval '1 microsecond'
                ORDER BY j.visible_at LIMIT coalesce(l.most_due, $2::integer) FOR UPDATE SKIP LOCKED
            ) due
            UNION ALL
            SELECT locked.tid, 1, false, locked.began_at, f.position, f.seq, locked.size,
                   CASE WHEN locked.tid IS NULL THEN 'taken' ELSE locked.spent END
            FROM (
                SELECT one.* FROM unnest($19::text[]) AS t(tag) CROSS JOIN LATERAL (
                    SELECT j.ctid AS tid, j.position, j.seq FROM holdfast.jobs j
                    WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority AND j.tag = t.tag
                      AND j.state = 'ready' AND j.position > l.after
                    ORDER BY j.position LIMIT $2::integer
                ) one
                ORDER BY one.position LIMIT $2::integer
            ) f
            LEFT JOIN LATERAL (
                SELECT j.ctid AS tid, j.visible_at AS began_at, octet_length(j.payload) AS size,
                       CASE WHEN j.expires_at <= now() THEN 'expired' END AS spent
                FROM holdfast.jobs j WHERE j.ctid = f.tid AND j.state = 'ready' LIMIT 1 FOR UPDATE SKIP LOCKED
            ) locked ON true
        ) x LIMIT share.most
    ) y LIMIT $2::integer
), seat AS MATERIALIZED (
    SELECT tid, ord, part, again, began_at, place, seq, row_number() OVER w AS slot, sum(size) OVER w - size AS before
    FROM picked WHERE spent IS NULL WINDOW w AS (ORDER BY ord, part, place ROWS UNBOUNDED PRECEDING)
), leased AS (
    UPDATE holdfast.jobs j
    SET state = 'leased', leased_at = clock_timestamp(), deliveries = j.deliveries + 1,
        crashes = j.crashes + s.again::integer,
        lease_id = ($7::uuid[])[s.slot], node = ($9::text[])[($8::integer[])[s.slot]],
        visible_at = clock_timestamp() + ($10::bigint[])[($8::integer[])[s.slot]] * interval '1 ms'
    FROM seat s WHERE j.ctid = s.tid AND s.before < $18::bigint
    RETURNING s.slot, s.ord, s.part, s.again, s.began_at, s.place, j.tenant, j.topic_id, j.seq, j.deliveries, j.lease_id,
              j.node, j.visible_at, j.created_at, j.tag, j.metadata, j.payload, j.content_type,
              CASE WHEN j.key IS NOT NULL OR j.grp IS NOT NULL OR j.original_topic IS NOT NULL OR j.crashes > 0
                   THEN ROW(j.original_topic, j.original_seq, j.original_deliveries, j.key, j.grp, j.crashes,
                            j.original_crashes) END AS rare,
              CASE WHEN $13::boolean
                   THEN ROW(j.last_error, (date_part('epoch', j.expires_at) * 1000)::bigint, j.max_deliveries,
                            (date_part('epoch', j.dlq_moved_at) * 1000)::bigint, j.first_topic_id, j.first_seq) END AS more
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until, began_at, tenant)
    SELECT $1, topic_id, seq, 'claimed', deliveries, lease_id, node, visible_at, began_at, nullif(tenant, '') FROM leased
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, leased)
    SELECT min(topic_id), -sum(part), sum(part + again::integer - 1), sum(1 - again::integer) FROM leased
    HAVING count(*) > 0
)
SELECT CASE WHEN again THEN 'again' ELSE 'leased' END AS kind, ord AS lane, part = 0 AS due, place, slot, seq, deliveries,
       (date_part('epoch', visible_at) * 1000)::bigint AS deadline_ms,
       date_part('epoch', created_at) AS created, tag, metadata, payload, content_type, rare, more
FROM leased
UNION ALL
SELECT spent, ord, part = 0, place, NULL, seq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM picked WHERE spent IS NOT NULL
UNION ALL
SELECT CASE WHEN before < $18::bigint THEN 'lost' ELSE 'heavy' END, ord, part = 0, place, NULL, seq, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL
FROM seat
WHERE (SELECT count(*) FROM leased) < (SELECT count(*) FROM seat) AND slot NOT IN (SELECT slot FROM leased)
UNION ALL
SELECT 'clock', NULL, NULL, (date_part('epoch', now()) * 1000000)::bigint, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL
