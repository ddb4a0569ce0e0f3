-- Which users jobs are for.   $1 topic  $2 seqs
-- Answers one row for each job that is for a user: its seq, the user, and what its id is made of: the topic's id and the
-- seq of the job that it was at first.   Index: primary key.
SELECT x.* FROM unnest($2::bigint[]) AS r(seq) CROSS JOIN LATERAL (
    SELECT j.seq, j.metadata ->> '$user_id' AS user_id, coalesce(j.first_topic_id, j.topic_id) AS topic_id,
           coalesce(j.first_seq, j.seq) AS first_seq
    FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq = r.seq AND length(j.metadata ->> '$user_id') BETWEEN 1 AND 128
) x
