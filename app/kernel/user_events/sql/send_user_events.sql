-- Keep events for users, and forget the oldest of a user who has more than so many.
--   one each per event:  $1 users  $2 events  $3 data, as JSON      $4 most events of a user, besides these
-- Answers one row: their ids, in the order given.
-- Who writes a user's events holds that user's lock up to the commit, and draws the ids under it: of one user, ids ascend
-- in the order of commits, and who reads on after an id misses nothing. The locks are taken in the order of their keys.
-- Indexes: user_events_of, primary key.
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
