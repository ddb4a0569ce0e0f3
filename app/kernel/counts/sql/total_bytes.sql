-- How many bytes all topics hold: payloads of jobs that are not finished; of logs, with metadata.   No parameters.
-- Answers one row. Reads all tallies and states of logs, which are a few rows a topic.
SELECT ((SELECT coalesce(sum(t.bytes), 0) FROM holdfast.tallies t)
        + (SELECT coalesce(sum(l.bytes), 0) FROM holdfast.log_state l))::bigint AS bytes
