-- Write down what queues held $6, an interval, ago: those of which it is not what their last row says.
-- One each:  $1 topic ids  $2 ready  $3 in flight  $4 scheduled  $5 blocked
-- Answers how many. A minute that has a row takes the later look; of a topic that is gone nothing is written.
-- Index: primary key.
WITH at AS MATERIALIZED (
    SELECT date_trunc('minute', now() - $6::interval, 'UTC') AS minute
), put AS (
    INSERT INTO holdfast.depths AS d (topic_id, minute, ready, in_flight, scheduled, blocked)
    SELECT q.topic_id, at.minute, q.ready, q.in_flight, q.scheduled, q.blocked
    FROM at CROSS JOIN unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS q(topic_id, ready, in_flight, scheduled, blocked)
    LEFT JOIN LATERAL (
        SELECT l.ready, l.in_flight, l.scheduled, l.blocked FROM holdfast.depths l
        WHERE l.topic_id = q.topic_id AND l.minute <= at.minute ORDER BY l.minute DESC LIMIT 1
    ) l ON true
    WHERE (q.ready, q.in_flight, q.scheduled, q.blocked)
          IS DISTINCT FROM (l.ready, l.in_flight, l.scheduled, l.blocked)
      AND EXISTS (SELECT FROM holdfast.topics t WHERE t.id = q.topic_id)
    ORDER BY q.topic_id
    ON CONFLICT (topic_id, minute) DO UPDATE
    SET ready = excluded.ready, in_flight = excluded.in_flight, scheduled = excluded.scheduled,
        blocked = excluded.blocked
    RETURNING 1
)
SELECT count(*) FROM put
