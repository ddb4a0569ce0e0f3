-- What is left to do now in some topics ($1): rows of topic, what it is, and how many.
-- Not what waits for its time, nor what stands behind that in its group. A schedule that a handler declares ($2: their
-- names), whose topic is there, is left until a worker has put it.
-- One snapshot: a job that led to another is counted unless that other one is. It is newer than now(), by which a job that
-- was returned in between is yet to come; by the clock its time has come.
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
