-- Topics that have rows in the inbox which nobody has looked at.   $1 topics after this one  $2 most topics
-- One row a topic, by name: a step from each to the next, however many rows it has.   Index: primary key.
WITH RECURSIVE one AS (
    (SELECT u.topic FROM holdfast.inbox_unchecked u WHERE u.topic > $1 ORDER BY u.topic LIMIT 1)
    UNION ALL
    SELECT (SELECT u.topic FROM holdfast.inbox_unchecked u WHERE u.topic > o.topic ORDER BY u.topic LIMIT 1)
    FROM one o WHERE o.topic IS NOT NULL
)
SELECT o.topic FROM one o WHERE o.topic IS NOT NULL LIMIT $2
