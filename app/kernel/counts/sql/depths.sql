-- How much queues hold.
--   topics:  $1 names  $2 ids  $3 whether deliveries run out there  $4 their max_deliveries  $5 their tallies above this
--   id; one each
--   $6 most entries to look at of a topic's jobs whose time has come or passed
--   low marks of lanes that have one:  $7 topics  $8 tenants  $9 priorities  $10 positions  $11 times in µs since 1970
-- One row a topic: ready, in_flight, scheduled, blocked and `looked` as in count; bytes of payloads, also of what has
-- outlived its time and is not marked yet; oldest_ms, for how long the oldest of those ready could have been claimed
-- (NULL: none). Nothing below the marks is looked at. Plain reads: takes no lock and waits for none.
-- Indexes: primary key of tallies, primary key of lanes, jobs_ready, jobs_expiring, jobs_due.
WITH lane AS MATERIALIZED (
    SELECT one.topic, one.tenant, one.priority, max(one.low) AS low, max(one.due_low) AS due_low
    FROM (
        SELECT l.topic, l.tenant, l.priority, 0::bigint AS low, timestamptz '-infinity' AS due_low
        FROM holdfast.lanes l WHERE l.topic = ANY ($1::text[])
        UNION ALL
        SELECT m.topic, m.tenant, m.priority, m.low, timestamptz 'epoch' + m.due_low * interval '1 microsecond'
        FROM unnest($7::text[], $8::text[], $9::smallint[], $10::bigint[], $11::bigint[])
            AS m(topic, tenant, priority, low, due_low)
    ) one
    GROUP BY one.topic, one.tenant, one.priority
), t AS MATERIALIZED (
    -- By grouping, not by joins: with hash and merge joins off they would compare every topic with every lane.
    SELECT one.topic, max(one.topic_id) AS topic_id, bool_or(one.ends) AS ends, max(one.most) AS most,
           max(one.tally) AS tally,
           array_agg(one.tenant) FILTER (WHERE one.ends IS NULL) AS tenants,
           array_agg(one.priority) FILTER (WHERE one.ends IS NULL) AS priorities,
           array_agg(one.low) FILTER (WHERE one.ends IS NULL) AS lows,
           array_agg(one.due_low) FILTER (WHERE one.ends IS NULL) AS due_lows
    FROM (
        SELECT q.topic, q.topic_id, q.ends, q.most, q.tally, NULL::text AS tenant, NULL::smallint AS priority,
               NULL::bigint AS low, NULL::timestamptz AS due_low
        FROM unnest($1::text[], $2::integer[], $3::boolean[], $4::integer[], $5::bigint[])
            AS q(topic, topic_id, ends, most, tally)
        UNION ALL
        SELECT topic, NULL, NULL, NULL, NULL, tenant, priority, low, due_low FROM lane
    ) one
    GROUP BY one.topic
)
SELECT t.topic, (stored.ready - stale.ready + due.ready)::bigint AS ready,
       (stored.leased - due.ended)::bigint AS in_flight,
       (stored.scheduled - due.n + due.ended)::bigint AS scheduled, stored.blocked::bigint AS blocked,
       stored.bytes::bigint AS bytes, greatest(stale.n, due.n) AS looked,
       (date_part('epoch', now() - least(head.since, due.since)) * 1000)::bigint AS oldest_ms
FROM t CROSS JOIN LATERAL (
    SELECT coalesce(sum(y.ready), 0) AS ready, coalesce(sum(y.scheduled), 0) AS scheduled,
           coalesce(sum(y.blocked), 0) AS blocked, coalesce(sum(y.leased), 0) AS leased,
           coalesce(sum(y.bytes), 0) AS bytes
    FROM holdfast.tallies y WHERE y.topic_id = t.topic_id AND y.id > t.tally
) stored CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE ready) AS ready FROM (
        SELECT j.state::text = 'ready' AS ready FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.expires_at IS NOT NULL AND j.expires_at <= now()
          AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
        ORDER BY j.expires_at LIMIT $6::integer
    ) e
) stale CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE NOT spent) AS ready, count(*) FILTER (WHERE leased) AS ended,
           min(visible_at) FILTER (WHERE NOT spent) AS since
    FROM (
        SELECT one.* FROM unnest(t.tenants, t.priorities, t.due_lows) AS l(tenant, priority, due_low)
        CROSS JOIN LATERAL (
            SELECT j.visible_at, j.state::text = 'leased' AS leased,
                   coalesce(j.expires_at <= now(), false)
                   OR (t.ends AND coalesce(j.max_deliveries, t.most) > 0
                       AND j.deliveries >= coalesce(j.max_deliveries, t.most)) AS spent
            FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_low AND j.visible_at < now()
            ORDER BY j.visible_at LIMIT $6::integer
        ) one LIMIT $6::integer
    ) d
) due CROSS JOIN LATERAL (
    SELECT min(f.visible_at) AS since
    FROM unnest(t.tenants, t.priorities, t.lows) AS l(tenant, priority, low) CROSS JOIN LATERAL (
        SELECT e.visible_at FROM (
            SELECT j.visible_at, j.expires_at FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.tenant = l.tenant AND j.priority = l.priority AND j.state = 'ready'
              AND j.position > l.low
            ORDER BY j.position LIMIT $6::integer
        ) e WHERE e.expires_at IS NULL OR e.expires_at > now() LIMIT 1
    ) f
) head
