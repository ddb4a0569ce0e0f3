-- Adds the topic's id to every unique key of the tables that Citus would distribute by it. Plain PostgreSQL.
-- Don't run it on a Holdfast in use: Holdfast's statements name the current keys (ON CONFLICT). See README.md beside this file.
BEGIN;

ALTER TABLE holdfast.lanes ADD COLUMN topic_id integer;
UPDATE holdfast.lanes l SET topic_id = t.id FROM holdfast.topics t WHERE t.name = l.topic;
DELETE FROM holdfast.lanes WHERE topic_id IS NULL;
ALTER TABLE holdfast.lanes
    DROP CONSTRAINT lanes_pkey,
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (topic_id, tenant, priority);

ALTER TABLE holdfast.jobs
    DROP CONSTRAINT jobs_pkey,
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (topic_id, seq);

DROP INDEX holdfast.jobs_group_out;
CREATE UNIQUE INDEX jobs_group_out ON holdfast.jobs (topic_id, tenant, grp)
    WHERE grp IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'leased');

DROP INDEX holdfast.jobs_pending_key;
CREATE UNIQUE INDEX jobs_pending_key ON holdfast.jobs (topic_id, tenant, key)
    WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked');

ALTER TABLE holdfast.records
    DROP CONSTRAINT records_pkey,
    ADD CONSTRAINT records_pkey PRIMARY KEY (topic_id, seq);

ALTER TABLE holdfast.idempotency
    DROP CONSTRAINT idempotency_pkey,
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (topic_id, key);

COMMIT;
