-- Is there something to claim, and when will there be?   $1 topics
-- One row a topic: claimable, and wait_ms, the time until the next scheduled job or ending lease (NULL: none).
-- Plain reads: takes no lock and waits for none.   Indexes: jobs_ready, jobs_due.
SELECT l.topic, bool_or(ready.found OR coalesce(due.at < now(), false)) AS claimable,
       (date_part('epoch', min(due.at) - now()) * 1000)::bigint AS wait_ms
FROM holdfast.lanes l
CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT 1 FROM holdfast.jobs j WHERE j.topic = l.topic AND j.tenant = l.tenant
                   AND j.priority = l.priority AND j.state = 'ready') AS found
) ready
LEFT JOIN LATERAL (
    SELECT j.visible_at AS at FROM holdfast.jobs j WHERE j.topic = l.topic AND j.tenant = l.tenant
    AND j.priority = l.priority AND j.state IN ('leased', 'scheduled') ORDER BY j.visible_at LIMIT 1
) due ON true
WHERE l.topic = ANY ($1::text[])
GROUP BY l.topic
