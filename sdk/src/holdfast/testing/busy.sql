-- Remaining work in topics: rows of topic, kind and count.   $1 topics  $2 names of schedules that handlers declare
-- Leaves out scheduled jobs and jobs blocked behind them in their group. A declared schedule counts until a worker has
-- created it.
-- Uses clock_timestamp(): now() may be older than the snapshot, and a job returned in between would seem not due yet.
SELECT s.topic, s.state AS what, count(*) AS n
FROM holdfast.job_states s
WHERE s.topic = ANY ($1::text[])
  AND (s.state IN ('ready', 'leased')
       OR (s.state = 'scheduled' AND s.visible_at <= clock_timestamp())
       OR (s.state = 'blocked' AND NOT EXISTS (
               SELECT 1 FROM holdfast.job_states h
               WHERE h.topic = s.topic AND h.tenant = s.tenant AND h.grp = s.grp AND h.state = 'scheduled')))
GROUP BY s.topic, s.state
UNION ALL
SELECT u.topic, 'waiting for its schema', count(*) FROM holdfast.inbox_unchecked u
WHERE u.topic = ANY ($1::text[]) GROUP BY u.topic
UNION ALL
SELECT t.name, 'schedule to be put', 1 FROM holdfast.topics t
WHERE t.name = ANY ($2::text[]) AND NOT EXISTS (SELECT 1 FROM holdfast.schedules s WHERE s.name = t.name)
ORDER BY 1, 2
