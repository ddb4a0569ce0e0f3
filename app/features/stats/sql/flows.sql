-- What became of topics' jobs in the last minutes.   $1 topic ids   $2 how many minutes, the one that runs included
-- One row a topic of which anything is known: `ago`, how many minutes before the one that runs, ascending by time, and
-- for each of them what was counted, of all tenants together.
-- Costs a row a minute and tenant.   Index: primary key of topic_stats.
SELECT t.id AS topic_id, f.ago, f.enqueued, f.claimed, f.completed, f.failed, f.dead_lettered
FROM unnest($1::integer[]) AS t(id) CROSS JOIN LATERAL (
    SELECT array_agg(m.ago ORDER BY m.ago DESC) AS ago, array_agg(m.enqueued ORDER BY m.ago DESC) AS enqueued,
           array_agg(m.claimed ORDER BY m.ago DESC) AS claimed, array_agg(m.completed ORDER BY m.ago DESC) AS completed,
           array_agg(m.failed ORDER BY m.ago DESC) AS failed,
           array_agg(m.dead_lettered ORDER BY m.ago DESC) AS dead_lettered
    FROM (
        SELECT (date_part('epoch', date_trunc('minute', now()) - s.minute) / 60)::integer AS ago,
               sum(s.enqueued)::bigint AS enqueued, sum(s.wait_count)::bigint AS claimed,
               sum(s.completed)::bigint AS completed, sum(s.failed)::bigint AS failed,
               sum(s.dead_lettered)::bigint AS dead_lettered
        FROM holdfast.topic_stats s
        WHERE s.topic_id = t.id AND s.minute > date_trunc('minute', now()) - $2::integer * interval '1 minute'
        GROUP BY s.minute
    ) m
) f WHERE f.ago IS NOT NULL
