-- Lease jobs to a cohort of callers: the i-th job that may be leased takes the i-th slot.
--   $1 topic  $2 most jobs to look at, also the number of slots
--   lanes, in claim order, each once:  $3 tenants  $4 priorities  $5 ready jobs above this position
--                                      $6 due jobs after this time, in µs since 1970 (NULL: don't look)
--   slots:  $7 lease ids  $8 the slot's caller, from 1      callers:  $9 nodes  $10 lease lengths in ms
--   $11 whether deliveries run out here  $12 the topic's max_deliveries, 0 for no end  $13 whether `more` is wanted, what
--   the messages dialect shows besides (NULL: not wanted)
--   shares of it, one for each tenant:  $14 its first lane  $15 its last, places in $3  $16 most jobs to look at in them
-- Rows by what they are (`kind`):
--   leased     a job and its slot
--   exhausted, expired   a job met on the way that has no delivery left, or whose time to live has passed: not leased;
--              the caller takes it out with bury, fail or expire
--   lost       a job that was locked, and had been changed meanwhile: not leased, and still there
--   clock      one row always, the last: `place` is now()
-- `lane` is the lane's place in $3 (from 1), `due` whether the job stood in its due part, `place` its position there:
-- a position, or a time in µs since 1970. Lanes are gone through in order, each due part before the ready part, until the
-- share's most or $2 jobs were met: all of the share before the last one met were seen to their ends.
-- Compares with now(), which an index can serve; writes clock_timestamp(), so that no lease is born short.
-- Changes by ctid: a join by key turns into a walk over the whole index when statistics are stale.
-- Indexes: jobs_due, jobs_ready. Needs the hot pool's planner settings.
WITH picked AS MATERIALIZED (
    SELECT y.* FROM unnest($14::integer[], $15::integer[], $16::integer[]) AS share(first, last, most) CROSS JOIN LATERAL (
        SELECT x.*, share.first - 1 + l.ord AS ord
        FROM unnest(($3::text[])[share.first:share.last], ($4::smallint[])[share.first:share.last],
                    ($5::bigint[])[share.first:share.last], ($6::bigint[])[share.first:share.last])
            WITH ORDINALITY AS l(tenant, priority, after, due_after, ord)
        CROSS JOIN LATERAL (
            SELECT * FROM (
                SELECT ctid AS tid, 0 AS part, j.state::text = 'leased' AS again,
                       (date_part('epoch', j.visible_at) * 1000000)::bigint AS place, j.seq,
                       CASE WHEN j.expires_at <= now() THEN 'expired'
                            WHEN $11::boolean AND coalesce(j.max_deliveries, $12::integer) > 0
                                 AND j.deliveries >= coalesce(j.max_deliveries, $12::integer) THEN 'exhausted'
                       END AS spent
                FROM holdfast.jobs j
                WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
                  AND j.state IN ('leased', 'scheduled') AND j.visible_at < now()
                  AND j.visible_at > timestamptz 'epoch' + l.due_after * interval '1 microsecond'
                ORDER BY j.visible_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
            ) due
            UNION ALL
            SELECT * FROM (
                SELECT ctid, 1, false, j.position, j.seq, CASE WHEN j.expires_at <= now() THEN 'expired' END
                FROM holdfast.jobs j
                WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
                  AND j.state = 'ready' AND j.position > l.after
                ORDER BY j.position LIMIT $2::integer FOR UPDATE SKIP LOCKED
            ) ready
        ) x LIMIT share.most
    ) y LIMIT $2::integer
), seat AS MATERIALIZED (
    SELECT tid, ord, part, again, place, seq, row_number() OVER (ORDER BY ord, part, place) AS slot
    FROM picked WHERE spent IS NULL
), leased AS (
    UPDATE holdfast.jobs j
    SET state = 'leased', leased_at = clock_timestamp(), deliveries = j.deliveries + 1, lease_id = ($7::uuid[])[s.slot],
        node = ($9::text[])[($8::integer[])[s.slot]],
        visible_at = clock_timestamp() + ($10::bigint[])[($8::integer[])[s.slot]] * interval '1 ms'
    FROM seat s WHERE j.ctid = s.tid
    RETURNING s.slot, s.ord, s.part, s.again, s.place, j.topic_id, j.seq, j.deliveries, j.lease_id, j.node, j.visible_at,
              j.created_at, j.tag, j.metadata, j.payload, j.original_topic, j.original_seq, j.original_deliveries,
              j.content_type, j.key, j.last_error, j.expires_at, j.max_deliveries, j.dlq_moved_at, j.first_topic_id,
              j.first_seq
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until)
    SELECT $1, topic_id, seq, 'claimed', deliveries, lease_id, node, visible_at FROM leased
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, leased)
    SELECT min(topic_id), -sum(part), sum(part + again::integer - 1), sum(1 - again::integer) FROM leased
    HAVING count(*) > 0
)
SELECT 'leased' AS kind, ord AS lane, part = 0 AS due, place, slot, seq, deliveries,
       (date_part('epoch', visible_at) * 1000)::bigint AS deadline_ms,
       (date_part('epoch', created_at) * 1000)::bigint AS created_ms, tag, metadata, payload,
       original_topic, original_seq, original_deliveries, content_type, key,
       CASE WHEN $13::boolean THEN
           ROW(last_error, (date_part('epoch', expires_at) * 1000)::bigint, max_deliveries,
               (date_part('epoch', dlq_moved_at) * 1000)::bigint, first_topic_id, first_seq)
       END AS more
FROM leased
UNION ALL
SELECT spent, ord, part = 0, place, NULL, seq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL
FROM picked WHERE spent IS NOT NULL
UNION ALL
SELECT 'lost', ord, part = 0, place, NULL, seq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL
FROM seat
WHERE (SELECT count(*) FROM leased) < (SELECT count(*) FROM seat) AND slot NOT IN (SELECT slot FROM leased)
UNION ALL
SELECT 'clock', NULL, NULL, (date_part('epoch', now()) * 1000000)::bigint, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL
