-- Count a topic's jobs one by one, and add what its tallies lack: what was written past the service's statements.
--   $1 topic  $2 topic id
-- Answers one row: by how many jobs the tallies were off. Both are seen as of one snapshot, so that whatever happens
-- meanwhile adds to both alike. Two at once would add the same twice: a lock taken by an earlier statement keeps them apart.
-- Reads the whole topic. Index: primary key.
WITH counted AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE state::text = 'ready') AS ready,
           count(*) FILTER (WHERE state::text = 'scheduled') AS scheduled,
           count(*) FILTER (WHERE state::text = 'blocked') AS blocked,
           count(*) FILTER (WHERE state::text = 'leased') AS leased,
           count(*) FILTER (WHERE state::text = 'failed') AS failed,
           count(*) FILTER (WHERE state::text = 'expired') AS expired,
           coalesce(sum(octet_length(payload)) FILTER (WHERE state::text NOT IN ('failed', 'expired')), 0) AS bytes
    FROM holdfast.jobs j WHERE j.topic = $1
), stored AS MATERIALIZED (
    SELECT coalesce(sum(ready), 0) AS ready, coalesce(sum(scheduled), 0) AS scheduled,
           coalesce(sum(blocked), 0) AS blocked, coalesce(sum(leased), 0) AS leased, coalesce(sum(bytes), 0) AS bytes,
           coalesce(sum(failed), 0) AS failed, coalesce(sum(expired), 0) AS expired
    FROM holdfast.tallies WHERE topic_id = $2
), off AS MATERIALIZED (
    SELECT c.ready - s.ready AS ready, c.scheduled - s.scheduled AS scheduled, c.blocked - s.blocked AS blocked,
           c.leased - s.leased AS leased, c.bytes - s.bytes AS bytes, c.failed - s.failed AS failed,
           c.expired - s.expired AS expired
    FROM counted c CROSS JOIN stored s
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes, failed, expired)
    SELECT $2, ready, scheduled, blocked, leased, bytes, failed, expired FROM off
    WHERE (ready, scheduled, blocked, leased, bytes, failed, expired) <> (0, 0, 0, 0, 0, 0, 0)
)
SELECT (abs(ready) + abs(scheduled) + abs(blocked) + abs(leased) + abs(failed) + abs(expired))::bigint FROM off
