-- Forget a schedule. What it has put in stays.   $1 name   Answers its topic; no row: there was none.
DELETE FROM holdfast.schedules s WHERE s.name = $1 RETURNING s.topic
