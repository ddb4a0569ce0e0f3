-- Indexes besides the primary keys. Those of jobs are partial where possible, so that a job is only in the indexes of its
-- state.


-- Jobs ---------------------------------------------------------------------------------------------------------------

-- The ready lane: claims scan it from their cursor.
CREATE INDEX jobs_ready ON holdfast.jobs (topic, tenant, priority DESC, position) WHERE state = 'ready';

-- The due lane: delays and leases by their end.
CREATE INDEX jobs_due ON holdfast.jobs (topic, tenant, priority DESC, visible_at) WHERE state IN ('leased', 'scheduled');

-- For claims by tag. Jobs without a tag are not in it. The predicate expresses "ready" so that the planner doesn't use
-- jobs_ready for these claims (claim_tagged.sql).
CREATE INDEX jobs_tagged ON holdfast.jobs (topic, tag, tenant, priority DESC, position)
    WHERE state >= 'ready' AND state <= 'ready' AND tag IS NOT NULL;

CREATE INDEX jobs_expiring ON holdfast.jobs (topic, expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('ready', 'scheduled', 'blocked', 'leased');

CREATE INDEX jobs_finished ON holdfast.jobs (topic, updated_at) WHERE state IN ('failed', 'expired');

-- Leases of named tenants, for their limits. A topic without tenants has nothing in it.
CREATE INDEX jobs_held ON holdfast.jobs (topic, tenant, visible_at) WHERE state = 'leased' AND tenant <> '';

-- A key has at most one pending job. Every statement that adds such a job uses this index as its ON CONFLICT arbiter. A
-- dead letter's key is only data, so several may have the same key.
CREATE UNIQUE INDEX jobs_pending_key ON holdfast.jobs (topic, tenant, key)
    WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked');

-- Every job of a key by state, such as expired leases.
CREATE INDEX jobs_keyed ON holdfast.jobs (topic, state, tenant, key, seq) WHERE key IS NOT NULL;

-- A group has at most one job that is ready, scheduled or leased. A dead letter's group is only data.
CREATE UNIQUE INDEX jobs_group_out ON holdfast.jobs (topic, tenant, grp)
    WHERE grp IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'leased');

-- The other jobs of a group wait, in order.
CREATE INDEX jobs_blocked ON holdfast.jobs (topic, tenant, grp, seq) WHERE state = 'blocked';

-- Dead letters, oldest first: for requeue and retention.
CREATE INDEX jobs_dead ON holdfast.jobs (topic, dlq_moved_at, seq) WHERE dlq_moved_at IS NOT NULL;

-- A dead letter by its original job, which is its id as a message.
CREATE INDEX jobs_first ON holdfast.jobs (first_topic_id, first_seq) WHERE first_topic_id IS NOT NULL;

-- Failures: each cluster of each source is a range ordered by time, counted without reading the jobs.
CREATE INDEX jobs_failures ON holdfast.jobs (topic, failed_in, cluster, failed_at, seq)
    INCLUDE (deliveries, original_deliveries) WHERE cluster IS NOT NULL;

CREATE INDEX new_lanes_tx ON holdfast.new_lanes (tx);
CREATE INDEX dedupe_expiring ON holdfast.dedupe (expires_at);
CREATE INDEX idempotency_expiring ON holdfast.idempotency (expires_at);
CREATE INDEX schedules_due ON holdfast.schedules (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX operations_under_way ON holdfast.operations (heartbeat_at) WHERE ended_at IS NULL;
CREATE INDEX operations_ended ON holdfast.operations (ended_at) WHERE ended_at IS NOT NULL;


-- By day -------------------------------------------------------------------------------------------------------------

-- Events are inserted in the order of their times, and a topic's seqs increase with them. So a BRIN suffices, and costs an
-- insert a twentieth of a B-tree on (topic_id, seq). It has a bloom filter instead of a range of seqs, because topics are
-- mixed (ADR 0038).
CREATE INDEX lease_events_read ON holdfast.lease_events USING brin (at, seq int8_bloom_ops)
    WITH (pages_per_range = 64, autosummarize = on);

CREATE INDEX results_job ON holdfast.results (topic, topic_id, seq);
-- Like jobs_first.
CREATE INDEX results_first ON holdfast.results (first_topic_id, first_seq) WHERE first_topic_id IS NOT NULL;

-- One order for the list of completed jobs (backwards), replay (forwards) and retention.
CREATE INDEX archive_finished ON holdfast.archive (topic, topic_id, finished_at, seq);
-- Whether a newer job of a key was completed. Jobs without a key are not in it.
CREATE INDEX archive_keyed ON holdfast.archive (topic, topic_id, tenant, key, finished_at, seq) WHERE key IS NOT NULL;


-- Other tables -------------------------------------------------------------------------------------------------------

-- For deletion by tag. Records without a tag are not in it.
CREATE INDEX records_tagged ON holdfast.records (topic, tag, seq) WHERE tag IS NOT NULL;
CREATE INDEX watches_expiring ON holdfast.watches (expires_at);
CREATE INDEX user_events_of ON holdfast.user_events (user_id, id);

CREATE INDEX inbox_place ON holdfast.inbox (place);
CREATE INDEX inbox_rejects_old ON holdfast.inbox_rejects (rejected_at);
CREATE INDEX stages_run ON holdfast.stages (run);
CREATE INDEX writes_old ON holdfast.writes (committed_at);

CREATE INDEX api_keys_page ON holdfast.api_keys (created_at, id);
-- A deleted user's name can be reused.
CREATE UNIQUE INDEX users_username ON holdfast.users (username) WHERE deleted_at IS NULL;
CREATE INDEX sign_in_tries_until ON holdfast.sign_in_tries (until);
CREATE INDEX audit_subject ON holdfast.audit (subject, id);
