-- Which users have events after an id.   one each:  $1 users  $2 ids   Answers one row each: the user.
-- The LATERAL leaves the planner no join to choose.   Index: user_events_of.
SELECT u.user_id FROM unnest($1::text[], $2::bigint[]) AS u(user_id, id)
CROSS JOIN LATERAL (
    SELECT FROM holdfast.user_events e WHERE e.user_id = u.user_id AND e.id > u.id ORDER BY e.id LIMIT 1
) x
