-- Up to when all minutes of topic_stats are told, in ms since 1970, and now. Answers one row.   Index: none, it is one row.
SELECT (date_part('epoch', p.filled_to) * 1000)::bigint AS filled_to_ms, clock_timestamp() AS at
FROM holdfast.topic_stats_progress p
