-- Add an entry to the audit trail.   $1 actor  $2 the actor's name or NULL  $3 address or NULL  $4 action  $5 subject
--   $6 detail as JSON
INSERT INTO holdfast.audit (actor, actor_name, address, action, subject, detail) VALUES ($1, $2, $3, $4, $5, $6::json)
