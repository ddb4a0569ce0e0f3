-- A user's next events.   $1 user  $2 after this id  $3 most events   No row: there are none.   Index: user_events_of.
SELECT e.id, e.event, e.data FROM holdfast.user_events e
WHERE e.user_id = $1 AND e.id > $2::bigint ORDER BY e.id LIMIT $3::integer
