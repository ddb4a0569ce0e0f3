-- How a topic is held up, and lock its row.   $1 name   No row: there is no such topic.
SELECT t.type, t.paused, t.paused_tenants, t.draining FROM holdfast.topics t WHERE t.name = $1 FOR UPDATE
