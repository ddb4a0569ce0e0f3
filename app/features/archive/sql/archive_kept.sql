-- How many days of the archive any topic needs, 2 at least; NULL: all. A topic that is not replayable now may have been.
SELECT CASE WHEN coalesce(bool_or(t.replay_window_ms = 0), false) THEN NULL
            ELSE greatest(2, ceil(max(t.replay_window_ms) / 86400000.0))::integer END
FROM holdfast.topics t WHERE t.type = 'queue'
