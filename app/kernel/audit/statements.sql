-- name: page
-- A page of the audit trail, the newest entries first.
--   $1  ids below this one
--   $2  most rows
--   $3  only entries of this actor, or NULL
--   $4  only entries on this subject, or NULL
--   $5  only entries with this action, or NULL
--   $6  only entries on topics whose names start with one of these; empty for all
--   $7  only entries from this time on, or NULL
-- Index: primary key, from its end.
SELECT a.id, a.at, a.actor, a.actor_name, a.address, a.action, a.subject, a.detail::text AS detail
FROM holdfast.audit a
WHERE a.id < $1
  AND ($3::text IS NULL OR a.actor = $3) AND ($4::text IS NULL OR a.subject = $4) AND ($5::text IS NULL OR a.action = $5)
  AND ($6::text[] = '{}' OR (starts_with(a.action, 'topic.')
       AND EXISTS (SELECT 1 FROM unnest($6::text[]) AS allowed WHERE starts_with(a.subject || '$', allowed))))
  AND ($7::timestamptz IS NULL OR a.at >= $7)
ORDER BY a.id DESC LIMIT $2

-- name: record
-- Add an entry to the audit trail.
--   $1  actor
--   $2  the actor's name, or NULL
--   $3  address, or NULL
--   $4  action
--   $5  subject
--   $6  detail as JSON
INSERT INTO holdfast.audit (actor, actor_name, address, action, subject, detail) VALUES ($1, $2, $3, $4, $5, $6::json)
