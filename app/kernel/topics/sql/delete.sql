-- Delete a topic and all that it holds, once its sequence is gone and, of a log, its lock is held: nothing can be added
-- any more.   $1 name   Answers one row: how many jobs went with it.
WITH jobs AS (
    DELETE FROM holdfast.jobs WHERE topic = $1 RETURNING topic_id, seq, deliveries, lease_id, node
), events AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node FROM jobs
), records AS (
    DELETE FROM holdfast.records WHERE topic = $1
), log AS (
    DELETE FROM holdfast.log_state WHERE topic = $1
), keys AS (
    DELETE FROM holdfast.idempotency WHERE topic = $1
), dedupe AS (
    DELETE FROM holdfast.dedupe d USING holdfast.topics t WHERE t.name = $1 AND d.topic_id = t.id
), lanes AS (
    DELETE FROM holdfast.lanes WHERE topic = $1
), schemas AS (
    DELETE FROM holdfast.topic_schemas s USING holdfast.topics t WHERE t.name = $1 AND s.topic_id = t.id
), secrets AS (
    DELETE FROM holdfast.webhook_secrets s USING holdfast.topics t WHERE t.name = $1 AND s.topic_id = t.id
), topic AS (
    DELETE FROM holdfast.topics WHERE name = $1
)
SELECT count(*) FROM jobs
