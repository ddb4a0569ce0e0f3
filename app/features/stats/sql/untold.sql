-- How many minutes, the one that runs included, are not told in topic_stats yet; a day's at most. What an open transaction
-- may still add to a minute is no reason to wait for it here.   Answers one row.   Index: none, it is one row.
SELECT greatest(0, 1 + date_part('epoch', date_trunc('minute', now()) - greatest(
    p.filled_to, p.guessed_to, date_trunc('minute', now()) - interval '1 day')) / 60)::integer
FROM holdfast.topic_stats_progress p
