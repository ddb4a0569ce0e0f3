-- Where a user's events are.   $1 user  $2 an id
-- Answers one row: `newest`, the last id (0: there is none), and `known`, whether the event of that id is there: then so
-- are all that came after it.   Indexes: user_events_of, primary key.
SELECT coalesce((SELECT e.id FROM holdfast.user_events e WHERE e.user_id = $1 ORDER BY e.id DESC LIMIT 1), 0) AS newest,
       EXISTS (SELECT FROM holdfast.user_events e WHERE e.id = $2::bigint AND e.user_id = $1) AS known
