-- name: read_user_events
-- A user's next events.   No row: there are none.   Index: user_events_of.
--   $1  user
--   $2  after this id
--   $3  most events
SELECT e.id, e.event, e.data FROM holdfast.user_events e
WHERE e.user_id = $1 AND e.id > $2::bigint ORDER BY e.id LIMIT $3::integer

-- name: send_user_events
-- Store events for users, and forget the oldest events of users with too many.
--   $1  user per event
--   $2  event names
--   $3  data per event, as JSON
--   $4  most events of a user, besides these
-- Answers one row: their ids, in the given order.
-- A transaction that writes a user's events holds the user's lock until its commit, and draws the ids under it. So a
-- user's ids ascend in the order of commits, and a reader that continues after an id misses nothing. Locks are taken in
-- the order of their keys.   Indexes: user_events_of, primary key.
WITH held AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(k.key) FROM (
        SELECT DISTINCT hashtextextended('holdfast.user_events ' || u.user_id, 0) AS key
        FROM unnest($1::text[]) AS u(user_id) ORDER BY 1 OFFSET 0
    ) k
), kept AS (
    INSERT INTO holdfast.user_events (user_id, event, data)
    SELECT e.user_id, e.event, e.data
    FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS e(user_id, event, data, ord)
    WHERE (SELECT count(*) FROM held) > 0
    ORDER BY e.ord
    RETURNING id
), trimmed AS (
    DELETE FROM holdfast.user_events d
    USING (SELECT DISTINCT u.user_id FROM unnest($1::text[]) AS u(user_id)) o
    WHERE (SELECT count(*) FROM held) > 0 AND d.user_id = o.user_id AND d.id <= (
        SELECT x.id FROM holdfast.user_events x WHERE x.user_id = o.user_id
        ORDER BY x.id DESC OFFSET $4::integer LIMIT 1
    )
)
SELECT array(SELECT id FROM kept ORDER BY id)

-- name: sweep_user_events
-- Forget users' events that are too old, and the oldest ones beyond a number for all users.
--   $1  how long an event is kept
--   $2  most events of all users
--   $3  most events of this call
-- Answers one row: how many. Ids ascend with time, apart from moments.   Index: primary key.
WITH picked AS MATERIALIZED (
    SELECT e.ctid AS tid FROM holdfast.user_events e
    WHERE e.id <= (
        SELECT max(o.id) FROM (
            SELECT x.id, x.created_at FROM holdfast.user_events x ORDER BY x.id LIMIT $3::integer
        ) o
        WHERE o.created_at < now() - $1::interval
           OR o.id <= (SELECT max(m.id) FROM holdfast.user_events m) - $2::bigint
    )
    ORDER BY e.id LIMIT $3::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.user_events d USING picked p WHERE d.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: user_events_after
-- Which users have events after an id?   $1 user  $2 their ids, one per user   Answers one row each: the user.
-- The LATERAL keeps the planner from choosing a join.   Index: user_events_of.
SELECT u.user_id FROM unnest($1::text[], $2::bigint[]) AS u(user_id, id)
CROSS JOIN LATERAL (
    SELECT FROM holdfast.user_events e WHERE e.user_id = u.user_id AND e.id > u.id ORDER BY e.id LIMIT 1
) x

-- name: user_events_from
-- The extent of a user's events.   $1 user  $2 an id
-- Answers one row: `newest`, the last id, 0 if there is none; `known`, whether the event with the given id is still
-- stored, and so all later ones are.   Indexes: user_events_of, primary key.
SELECT coalesce((SELECT e.id FROM holdfast.user_events e WHERE e.user_id = $1 ORDER BY e.id DESC LIMIT 1), 0) AS newest,
       EXISTS (SELECT FROM holdfast.user_events e WHERE e.id = $2::bigint AND e.user_id = $1) AS known

-- name: users_of
-- The users that jobs are for.   $1 topic  $2 seqs
-- Answers one row per job that is for a user: its seq; the user; the topic id and the seq of the job that it was at
-- first, which make up its id.   Index: primary key. The LIMIT keeps a plan that was made for an empty table from
-- scanning all jobs of the topic.
SELECT x.* FROM unnest($2::bigint[]) AS r(seq) CROSS JOIN LATERAL (
    SELECT j.seq, j.metadata ->> '$user_id' AS user_id, coalesce(j.first_topic_id, j.topic_id) AS topic_id,
           coalesce(j.first_seq, j.seq) AS first_seq
    FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq = r.seq AND length(j.metadata ->> '$user_id') BETWEEN 1 AND 128
    LIMIT 1
) x
