-- Leases that end later than they should.   $1 topics  $2 from how many ms from now on a lease is long; one each
--   $3 most lanes of a topic to look at  $4 most leases and delays of a topic to look at
-- One row a topic that has some: topic, leases, how many, and ends_ms, in how many ms the last of them ends. Those are
-- looked at that end first, up to 24 hours from now, the longest that a lease is good for.   Index: jobs_due.
SELECT t.topic, count(*) AS leases, (date_part('epoch', max(x.visible_at) - now()) * 1000)::bigint AS ends_ms
FROM unnest($1::text[], $2::bigint[]) AS t(topic, long_ms)
CROSS JOIN LATERAL (
    SELECT one.visible_at, one.state
    FROM (SELECT l.tenant, l.priority FROM holdfast.lanes l WHERE l.topic = t.topic LIMIT $3::integer) lane
    CROSS JOIN LATERAL (
        SELECT j.visible_at, j.state::text AS state FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.tenant = lane.tenant AND j.priority = lane.priority
          AND j.state IN ('leased', 'scheduled') AND j.visible_at > now() + t.long_ms * interval '1 ms'
          AND j.visible_at < now() + interval '24 hours 1 minute'
        ORDER BY j.visible_at LIMIT $4::integer
    ) one
    LIMIT $4::integer
) x
WHERE x.state = 'leased'
GROUP BY t.topic
