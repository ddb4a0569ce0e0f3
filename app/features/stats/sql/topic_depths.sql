-- What a queue held, step by step.   $1 topic id  $2 from when on  $3 how many steps  $4 the step, an interval
-- $5 an interval: where nobody looked for so long, nothing is known
-- One row a step of which it is known, by time: `at_ms` since 1970, and what was held at its end, or is now.
-- Costs two looks a step.   Indexes: primary keys.
SELECT (date_part('epoch', s.at) * 1000)::bigint AS at_ms, d.ready, d.in_flight, d.scheduled, d.blocked
FROM (
    SELECT $2::timestamptz + n * $4::interval AS at,
           least($2::timestamptz + (n + 1) * $4::interval, now()) AS before
    FROM generate_series(0, $3::integer - 1) AS n
) s CROSS JOIN LATERAL (
    SELECT d.ready, d.in_flight, d.scheduled, d.blocked FROM holdfast.depths d
    WHERE d.topic_id = $1::integer AND d.minute < s.before ORDER BY d.minute DESC LIMIT 1
) d
WHERE s.at < now()
  AND EXISTS (SELECT FROM holdfast.depth_looks l WHERE l.minute < s.before AND l.minute >= s.before - $5::interval)
ORDER BY s.at
